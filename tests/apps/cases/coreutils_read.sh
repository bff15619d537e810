# what: cat head tail wc nl od cut tr uniq sort shuf comm join paste fold tac split csplit expand pr
#   fmt basenc base64 numfmt factor
# version: cat --version
# run
cd "$DATA" || exit 1
for f in text/* binary/* names/*; do cat -- "$f" | cksum; cksum -- "$f"; done
cat text/one text/absent text/empty text; echo "status $?"
cat -A text/no_newline; cat -n text/one - < text/no_newline
head -n 3 text/words text/numbers; head -n -998 text/numbers; head -c 100 binary/4097 | cksum
head -c -100 binary/4097 | cksum
tail -n 3 text/words text/numbers; tail -n +998 text/numbers; tail -c 100 binary/4097 | cksum
tail -c +4000 binary/4097 | cksum
tail -n 2 < text/numbers
wc text/*; wc -c < binary/65536; wc -L text/table; wc -c binary/*
(head -n 1; tail -n 1) < text/no_newline
nl text/no_newline; od -A d -t x1z -N 64 -j 4000 binary/4096; od -c text/no_newline
od -t f8 binary/511 | cksum
cut -d ' ' -f 2 text/table | sort -u | wc -l; tr a-z A-Z < text/one; uniq -c text/table | tail -1
sort text/words | cksum; sort -n -k 3 text/table | cksum
sort -R --random-source=binary/65536 text/words | cksum
sort -S 64K -T "$OUT" --parallel=2 text/long text/words text/numbers binary/65536 | cksum
sort -m <(sort text/words) <(sort text/numbers) | cksum; sort -c text/words; echo "status $?"
sort -u -o text/sorted text/words; cksum text/sorted; sort -o text/words text/words
cksum text/words
sort --files0-from=<(printf '%s\0' text/one text/no_newline)
shuf --random-source=binary/1048576 text/numbers | cksum
shuf -n 5 --random-source=binary/4096 text/words
comm -12 text/sorted <(sort -u text/words) | wc -l; comm <(sort text/numbers) <(sort text/one)
join <(sort text/table) <(sort text/numbers) | cksum
paste text/numbers text/words | tail -2; fold -w 50 text/long | tail -1; tac text/words | head -1
tac text/numbers | cksum
split -n 4 text/long "$OUT/part."; cat "$OUT"/part.* | cmp - text/long && echo joined
split -b 1000 -d binary/4097 "$OUT/bytes."; ls "$OUT"; split -n l/3 --filter='cksum' text/words
csplit -q -f "$OUT/c." text/numbers 10 '/^500$/' '{0}'; wc -l "$OUT"/c.*
expand text/table | cksum; pr -t -2 text/numbers | cksum; fmt text/long | cksum
basenc --base64 binary/511 | cksum; rev text/one
base64 binary/65536 | base64 -d | cmp - binary/65536 && echo decoded
numfmt --to=iec < text/numbers | tail -1; factor < text/one; sum text/long
strings -n 8 binary/1048576 | cksum; look aa text/words
printf '%s\n' "$(< text/one)"; test -s text/empty; echo "status $?"
realpath tree/link | sed "s|$DATA||"; readlink tree/link
exit 0
