# what: bash: process substitution, coproc, pipelines and jobs on one file, source and run of
#   scripts, tests of files
# version: bash --version
# run
cd "$DATA" || exit 1
diff <(sort text/words) <(sort -r text/words | tac) && echo same
paste <(head -3 text/numbers) <(tail -3 text/numbers)
cat text/table | tee >(cksum > "$OUT/sum") | wc -l
while ! [ -s "$OUT/sum" ]; do read -r -t 0.05 < <(:) ; done; cat "$OUT/sum"
coproc READER { while read -r line; do echo "got $line"; done < text/numbers; read -r; }
read -r -u "${READER[0]}" x; read -r -u "${READER[0]}" y; echo "$x, $y"
head -c 9000 <&"${READER[0]}" | cksum
echo end >&"${READER[1]}"; wait
coproc SED { sed -u 's/^/> /'; }
cat text/one >&"${SED[1]}"; read -r -u "${SED[0]}" x; echo "$x"
eval "exec ${SED[1]}>&-"; wait
exec 6< text/numbers
for n in 1 2 3 4; do (read -r -u 6 x; echo "$x" >> "$OUT/shared"); done
sort -n "$OUT/shared"
for n in 1 2 3; do (cksum < binary/65536 > "$OUT/job$n") & done; wait; cat "$OUT"/job?
text/script a; echo "status $?"
bash text/script b; echo "status $?"
(. text/script c); echo "status $?"
(source <(cat text/script) d); echo "status $?"
for f in text/* tree/* names/*; do
  printf '%q' "$f"; for t in e f d L s r w x; do [ -$t "$f" ] && printf ' %s' $t; done; echo
done
[ tree/hard_link -ef tree/1/1/file_01.txt ] && echo "one file"
[ text/words -nt text/empty ] && echo newer
[[ $(< text/one) == "one line" ]] && echo equal
echo text/* tree/**/*.txt | cksum
(cd tree/0/0 && cat ../../../text/one && cat ./file_00.txt | head -1)
bash -c 'cat text/one; exec cat text/no_newline' | cksum
echo 'cat text/one' | bash -s
bash -c 'read -r a; bash -c "read -r b; echo \$b"; read -r c; echo $a $c' < text/numbers
