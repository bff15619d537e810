# what: setpriv, runuser and su to another user with the environment kept, files of mode 0400,
#   groups, chroot, unshare, nice, timeout, env -i, setsid, nohup, flock
# needs: root; command setpriv; command runuser; command unshare
# version: setpriv --version
# run
cd "$DATA" || exit 1
cat text/secret; chmod 777 . text
setpriv --reuid=65534 --regid=65534 --clear-groups cat text/one
setpriv --reuid=65534 --regid=65534 --clear-groups cat text/secret; echo "status $?"
cat text/secret
setpriv --reuid=65534 --regid=65534 --clear-groups bash -c '
  cat text/words | cksum; cat text/secret; id -u; echo mine > text/mine; cat text/mine
  echo no >> text/one; echo "status $?"; cat < text/one'
cat text/mine; stat -c %u text/mine
runuser -u nobody -- bash -c 'cat text/one text/secret; echo "status $?"'
su -m -s /bin/bash nobody -c 'cat text/one text/secret; echo "status $?"' 2>&1
setpriv --no-new-privs --inh-caps=-all cat text/one; setpriv --bounding-set=-all cat text/one
setpriv --reuid=65534 --regid=65534 --clear-groups cat text/table | cksum; chmod 644 text/secret
setpriv --reuid=65534 --regid=65534 --clear-groups cat text/secret
"$PYTHON" -c '
import os
print(open("text/secret").read(), len(open("text/words").read()))
f = open("text/numbers", "rb", buffering=0); f.read(5)
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
try: open("text/secret")
except PermissionError as e: print(e)
print(f.read(5), open("text/one").read(), os.path.getsize("text/words"))
'
chroot / cat "$DATA/text/one"; unshare -m cat text/one; unshare -p -f --mount-proc cat text/one
unshare -U -r cat text/one text/secret; unshare -n -i -u cat text/one; nice -n 5 cat text/one
timeout 100 cat text/one; timeout 0.2 tail -f text/one; echo "status $?"; env -i /bin/cat text/one
setsid -w cat text/one; nohup cat text/one 2> "$OUT/nohup"; flock text/one cat text/one
flock -s 9 9< text/words; flock -n text/words echo locked; stdbuf -o0 cat text/one
script -qc 'cat text/one' "$OUT/typescript" < /dev/null | tr -d '\r'; rm "$OUT/typescript"
(ulimit -n 8; cat text/one text/no_newline); (ulimit -v 2000000; cat text/one)
exit 0
