# what: python3 -m http.server (sendfile) on the prefix, curl: whole, ranges, HEAD, listing, absent,
#   uploads from the prefix (-T, -F, --data-binary), file://
# needs: command curl
# version: curl --version
# run
cd "$DATA" || exit 1
cat > "$OUT/server.py" <<'END'
import http.server, os, socket, sys, threading
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        if not self.path.startswith("/sendfile/"): return super().do_GET()
        with open(self.path[10:], "rb") as f:
            size = os.fstat(f.fileno()).st_size
            self.send_response(200); self.send_header("Content-Length", str(size))
            self.end_headers(); self.wfile.flush()
            assert self.connection.sendfile(f, 7) == os.fstat(f.fileno()).st_size - 7
            os.sendfile(self.connection.fileno(), f.fileno(), 0, 7)
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(self.path[1:], "wb") as f: f.write(body)
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    do_POST = do_PUT
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
open(sys.argv[1] + ".new", "w").write(str(server.server_address[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
END
"$PYTHON" "$OUT/server.py" "$OUT/port" & server=$!
until [ -s "$OUT/port" ]; do read -r -t 0.05 < <(:); done; at=http://127.0.0.1:$(cat "$OUT/port")
for f in text/words text/empty binary/4096 binary/65536 binary/large binary/sparse; do
  curl -s $at/$f | cmp - $f && echo "same $f"
  curl -sI $at/$f | tr -d '\r' | grep -E '^(HTTP|Content|Last)'
done
for f in text/words binary/65536 binary/large; do curl -s $at/sendfile/$f | cksum; done
curl -s $at/tree/ | grep -c href; curl -s -o /dev/null -w '%{http_code}\n' $at/absent
curl -s $at/text/words $at/text/numbers $at/tree/link | cksum
seq 1 8 | xargs -P 8 -I@ curl -s -o "$OUT/part@" $at/binary/1048576; cat "$OUT"/part* | cksum
rm "$OUT"/part*
curl -s -T binary/100001 $at/text/put; cmp binary/100001 text/put && echo put
curl -s --data-binary @text/words $at/text/post; cmp text/words text/post && echo posted
curl -s -T - $at/text/put -H 'Transfer-Encoding:' -H 'Content-Length: 9' < text/one > /dev/null
curl -s -K <(echo "url=$at/text/one")
curl -s file://$DATA/text/words | cmp - text/words && echo same
curl -s -X PUT -T text/one $at/text/put; cat text/put; echo changed > text/one; curl -s $at/text/one
rm "$OUT"/{port,server.py}; kill $server; wait $server; echo "status $?"
exit 0
