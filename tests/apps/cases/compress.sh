# what: gzip, bzip2, xz, zstd, zip, unzip: made, tested, listed, undone, in place, over pipes and
#   seeking; zcat zgrep zdiff
# needs: command zip; command unzip; command zstd; command xz; command bzip2
# version: zstd --version
# prepare
cd "$DATA" && mkdir packed && gzip -nk9c text/words > packed/words.gz &&
  xz -c text/long > packed/long.xz && zstd -qc binary/100001 > packed/b.zst &&
  bzip2 -c text/table > packed/table.bz2
(cd text && TZ=UTC zip -qX ../packed/text.zip numbers words table no_newline)
# run
cd "$DATA" || exit 1
zcat packed/words.gz | cmp - text/words && xzcat packed/long.xz | cmp - text/long &&
  zstdcat packed/b.zst | cmp - binary/100001 && bzcat packed/table.bz2 | cmp - text/table &&
  echo same
gzip -t packed/words.gz; xz -t packed/long.xz; zstd -qt packed/b.zst; bzip2 -t packed/table.bz2
unzip -tq packed/text.zip; echo "status $?"; gzip -l packed/words.gz
xz --robot --list packed/long.xz | tail -1; zstd -lv packed/b.zst 2>&1 | grep -c Check
unzip -l packed/text.zip | tail -1; zipinfo -1 packed/text.zip
zgrep -c a packed/words.gz; zdiff packed/words.gz text/words && echo same
xzgrep -c a packed/long.xz; unzip -p packed/text.zip table | cmp - text/table && echo same
unzip -q packed/text.zip -d "$OUT/un"; diff -r "$OUT/un" text | sort
unzip -p packed/text.zip absent; echo "status $?"
for tool in gzip bzip2 xz 'zstd -q --rm'; do
  $tool text/words; ls text/words*; cat text/words; $tool -d text/words.*; cksum text/words
done
for tool in 'gzip -n' bzip2 'xz -T2 -1' 'zstd -q -T2 -19' 'zstd -q --long'; do
  $tool < binary/1048576 | cksum > /dev/null
  $tool -c text/long text/words | ${tool%% *} -dc | cksum
done
gzip -c text/absent; echo "status $?"; gzip < text/one | gunzip; gunzip < packed/words.gz | cksum
echo x > packed/bad.gz; gzip -t packed/bad.gz; echo "status $?"
zip -qX "$OUT/a.zip" -r text names; unzip -l "$OUT/a.zip" | wc -l; rm "$OUT/a.zip"
zip -qX packed/text.zip text/one; unzip -p packed/text.zip text/one; zip -qd packed/text.zip table
zipinfo -1 packed/text.zip; zip -T packed/text.zip > "$OUT/t"; echo "status $?"
zip -q - text/long | funzip | cmp - text/long && echo piped; rm packed/text.zip
zstd -q --train tree/*/*/*.txt -o "$OUT/dict" --maxdict=2000; echo "status $?"
zstd -q --patch-from=binary/4096 binary/4097 -o "$OUT/patch"
zstd -q -d --patch-from=binary/4096 "$OUT/patch" -o "$OUT/4097"
cmp "$OUT/4097" binary/4097 && echo patched; mkdir "$OUT/flat"
zstd -q tree/0/0/*.txt --output-dir-flat "$OUT/flat"; cat "$OUT"/flat/*.zst | zstd -dc | cksum
zstd -q -D text/words binary/511 -c | zstd -q -D text/words -dc | cmp - binary/511 &&
  echo dictionary
zstd -b1 -i0 binary/65536 > "$OUT/bench" 2>&1; rm "$OUT"/{bench,dict}
exit 0
