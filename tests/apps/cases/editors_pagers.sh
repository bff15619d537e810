# what: vim -es, ed, less, more, file, column, rev, look, hexdump, col, ul (wide-character streams
#   of util-linux)
# needs: command vim; command ed; command less; command file; command column; command rev
# version: vim --version
# run
cd "$DATA" || exit 1
vim -u NONE -i NONE -n -es -c '%s/one/ONE/' -c wq text/one < /dev/null; cat text/one
vim -u NONE -i NONE -n -es -c '1,3print' -c 'q!' text/words < /dev/null
vim -u NONE -i NONE -es -c 'normal Gonew line' -c 'w' -c 'r text/one' -c "w $OUT/w" \
  -c 'e text/numbers' -c '5d' -c wq text/no_newline < /dev/null
cat text/no_newline; sed -n 4,6p text/numbers; cat "$OUT/w"
vim -u NONE -i NONE -n -es -c 'set backup backupcopy=yes' -c '%d' -c 'normal iall new' -c wq \
  text/table < /dev/null
cat text/table; ls text/*~; cat text/table~ | cksum
vim -u NONE -i NONE -n -b -es -c '%!cksum' -c 'w! '"$OUT/sum" -c 'q!' binary/4097 < /dev/null
cat "$OUT/sum"
printf '%s\n' ',s/O/o/' w q | ed -s text/one; cat text/one
printf '%s\n' '$a' appended . 1p '/v/p' w q | ed -s text/words; tail -1 text/words
printf 'r text/one\n,p\nQ\n' | ed -s text/no_newline; ed -s text/absent < <(echo q)
less text/one; less text/words | cksum; less -f binary/4097 | cksum
LESSOPEN='|cat %s' less text/one; more text/one < /dev/null
file text/* binary/* names/* tree/link | sed 's/ *$//'
file -b --mime text/words binary/sparse text/script; file -f <(echo text/one); file - < text/script
file -z text/one
column -t text/table | cksum; column -t -s ' ' -o , text/table | tail -1; rev text/one
rev text/words | cksum; rev text/no_newline; rev < text/words | cksum
rev 'names/ümläut' text/absent text/one; echo "status $?"; col -b < text/words | cksum
ul -i text/one; colrm 3 5 < text/one; hexdump -C binary/511 | tail -2
hexdump -s 100 -n 32 -C binary/4096; look vo text/words
exit 0
