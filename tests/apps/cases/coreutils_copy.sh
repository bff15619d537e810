# what: cp (all kinds: -a --reflink --sparse -l -s -u -n --backup), install, mv, ln, dd, tee, link,
#   mktemp, onto and off the prefix
# version: cp --version
# run
cd "$DATA" || exit 1
cp binary/65536 "$OUT/plain"; cp -a text "$OUT/text"; cp -r tree "$OUT/tree"
cp -dR tree "$OUT/tree_d"
cp --reflink=auto binary/100001 "$OUT/reflink"
cp --reflink=always binary/511 "$OUT/always" 2> "$OUT/err"; echo "status $?"
cp --sparse=always binary/sparse "$OUT/sparse"; cp --sparse=never binary/sparse "$OUT/full"
cp binary/sparse "$OUT/auto"
cp -l text/words tree/words_link; cp -s "$DATA/text/words" "$OUT/symbolic"
cp --preserve=mode,timestamps text/script "$OUT/script"
cp -u text/one "$OUT/text/one"; cp -n text/numbers "$OUT/text/one"; cat "$OUT/text/one"
cp -L tree/link "$OUT/followed"; cp -P tree/link "$OUT/kept"; cp tree/dangling "$OUT/x"
echo "status $?"
cp text/one text/one; echo "status $?"; cp text/absent "$OUT"; echo "status $?"
cp text/words text/copy && cmp text/words text/copy && cp text/numbers text/copy &&
  cmp text/numbers text/copy
cp -b text/table text/copy && cat text/copy~ | cksum && cksum text/copy; cp -f text/secret text/copy
cat text/copy
cat text/one; cp text/no_newline text/one; cat text/one
cp --remove-destination text/numbers text/one; wc -l text/one
cp --parents tree/0/1/file_03.txt "$OUT"; cp -t "$OUT" names/*; cp text/one/x "$OUT"
echo "status $?"
cp /dev/stdin text/from_stdin < text/words; cksum text/from_stdin; cp /dev/null text/nothing
wc -c text/nothing
install -m 640 -D text/words "$OUT/deep/er/words"; install -d text/made
install -p -t text/made binary/4096 text/one; install -C text/one text/made/one
mv text/made/4096 text/moved; cksum text/moved; cat text/made/4096; mv text/moved binary/511
cksum binary/511; cat text/moved
mv "$OUT/plain" text/in; cksum text/in; mv text/in "$OUT/out"; cksum "$OUT/out"
mv -n text/words text/table; wc -l text/words text/table
mv --exchange text/words text/table 2> /dev/null; mv -b text/no_newline text/table; cat text/table
mv tree/0 tree/moved; cat tree/moved/0/file_00.txt
cat tree/link; echo "status $?"; mv tree/moved tree/0; cat tree/link
ln text/one text/hard; ln -s one text/soft; ln -sf words text/soft; wc -l text/soft
link text/one text/hard2; unlink text/hard; cat text/hard
ln -f text/numbers text/hard2; wc -l text/hard2; cat text/numbers | tee text/t1 text/t2 | cksum
cksum text/t1 text/t2; echo a | tee -a text/t1 > /dev/null; tail -1 text/t1
t=$(mktemp -p "$DATA/text"); cat text/words > "$t"; cmp "$t" text/words && rm "$t"
cat "$t" 2> /dev/null; echo "status $?"
for options in bs=1000 'bs=512 skip=3 count=2' 'ibs=100 obs=33 conv=swab' \
  'bs=4k skip=5000 iflag=skip_bytes' 'bs=1 count=9000 iflag=count_bytes,fullblock' \
  'bs=64k iflag=nocache' 'bs=4096 iflag=direct' 'bs=1k conv=sync' 'conv=ucase,block cbs=40'; do
  dd if=binary/65536 of="$OUT/dd" status=none $options; echo "$? $options"; cksum < "$OUT/dd"
done
dd if=binary/4096 of=binary/65536 seek=3 bs=1000 conv=notrunc status=none; cksum binary/65536
dd status=none bs=7 count=3 skip=2 < text/words | cksum
dd if=binary/4096 of=text/one oflag=append conv=notrunc,fsync status=none; cksum text/one
dd if=text/words bs=100 of=/dev/null 2>&1 | head -2
dd if=/dev/zero of=text/one bs=10 count=1 status=none; cksum text/one
exit 0
