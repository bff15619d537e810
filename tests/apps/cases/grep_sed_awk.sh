# what: grep -r -z -f -c -m -A, sed -n -i -E w r, awk getline and many files, mawk, diff, patch, bc
# needs: command patch; command bc
# version: grep --version
# run
cd "$DATA" || exit 1
grep -rn needle . | sort; grep -rlZ needle tree | sort -z | tr '\0' '\n'; grep -c 9 text/numbers
grep -m 2 -A 1 5 text/numbers; grep -f <(head -3 text/words) text/words | wc -l
grep -q vo text/words; echo "status $?"; grep nothing_here -r .; echo "status $?"
grep x text/absent text/one; echo "status $?"; grep -z last text/no_newline | tr '\0' '\n'
grep -a -o -b 'island' binary/sparse | cksum; grep -r island . | sort
grep -m 1 1 < text/numbers; { grep -m 1 1; cat; } < text/numbers | cksum
grep -L needle -r text | sort; grep -Fxvf text/one text/no_newline; grep -P '^\d{4}$' text/numbers
egrep -h '^(1|99)$' text/numbers text/one
sed -n '10,12p' text/numbers; sed 's/line/LINE/' text/one
sed -E -n 's/^(.)(.*)$/\2\1/p' text/no_newline; sed -s -n '$p' text/words text/numbers
sed 5q text/numbers; sed -n '$=' text/long text/words; sed '1r text/one' text/no_newline
sed "s/one/&/w $OUT/w" text/one
sed -i 's/one/two/' text/one; cat text/one; sed -i.bak 's/two/three/' text/one
cat text/one text/one.bak; sed -i '1~2d' text/numbers; wc -l text/numbers; sed -i 's/x/y/' text/*
cksum text/*; sed -i s/a/b/ text/absent; echo "status $?"
sed --follow-symlinks -i 's/needle/NEEDLE/' tree/link; head -1 tree/0/0/file_00.txt
sed -i '1i top' tree/hard_link; head -1 tree/hard_link; head -1 tree/1/1/file_01.txt
sed -u 2q < text/words; sed -f <(echo 's/^/> /') text/one; sed -z 's/\n/,/g' text/no_newline
awk '{ s += $3 } END { print NR, s }' text/table
awk 'FNR == 1 { print FILENAME, $0 }' text/one text/table text/numbers
awk 'BEGIN { while ((getline line < "text/numbers") > 0) n++; print n; close("text/numbers")
  getline line < "text/numbers"; print line }'
awk 'NR == FNR { a[$1]; next } $1 in a' text/table text/numbers | cksum
awk 'BEGIN { print "new" > "text/one"; close("text/one"); getline x < "text/one"; print x
  "cat text/one" | getline y; print y }'
awk 'BEGIN { if ((getline x < "text/absent") < 0) print "absent" }'; awk 1 text/absent
echo "status $?"
awk -v RS= 'END { print NR }' text/table
awk -f <(echo '{ print $2 > ENVIRON["OUT"] "/col" NR % 3 }') text/table; cat "$OUT"/col? | cksum
mawk '{ print length }' text/no_newline
cp -r tree "$OUT/tree"; diff -r tree "$OUT/tree" && echo same; echo x >> tree/0/0/file_00.txt
rm tree/2/0/file_08.txt; diff -rq tree "$OUT/tree" | sed "s|$OUT|OUT|"
diff -u --label a --label b text/no_newline text/one; echo "status $?"; diff text/one text/absent
echo "status $?"; diff binary/4096 binary/4097; diff -N text/absent text/one
diff3 text/one text/no_newline text/one | cksum; sdiff -s text/one text/no_newline
diff -u --label a --label b text/words <(sed s/a/A/ text/words) > "$OUT/p"
patch -s text/words "$OUT/p"; cksum text/words; patch -R -s text/words "$OUT/p"; cksum text/words
patch --dry-run text/table "$OUT/p" > "$OUT/rej"; echo "status $?"; echo 'a=1; a+2' > text/calc
bc -q text/calc; cut -c 1-3 text/one
exit 0
