# what: md5sum sha1sum sha256sum sha512sum b2sum cksum, made and checked (-c), cmp, stat, du, ls,
#   df, test
# version: stat --version
# run
cd "$DATA" || exit 1
for sum in md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum; do
  find . -type f -print0 | sort -z | xargs -0 $sum > "$OUT/$sum"; $sum -c --quiet "$OUT/$sum"
  echo "$sum $?"
done
sha256sum < binary/100001; sha256sum -z text/one names/*
cmp text/one text/no_newline; cmp -l binary/4096 binary/4097 | cksum
cmp -s binary/large binary/large; echo "status $?"
cmp -i 100:100 -n 50 binary/4096 binary/4096 && echo same
cmp binary/4096 - < binary/4096 && echo same
for f in text/* binary/* tree/* names/*; do
  stat -c '%s %a %h %F %u %g %Y %b %B %o %N' -- "$f"; stat -L -c '%s %F' -- "$f"
done
stat text/absent; echo "status $?"; stat -f -c '%T %l' text/words; stat -c '%s' - < binary/4097
ls -l --time-style=full-iso text tree names | grep -v ^total; ls -laR --time-style=+%s tree | cksum
ls -S binary; ls -t text | grep -v one
ls -i tree/hard_link tree/1/1/file_01.txt | awk '{ print $1 }' | uniq | wc -l
ls text/absent; echo "status $?"; ls -ld --time-style=+%s tree/link
ls -Ll --time-style=+%s tree/link; ls -Q names; ls --color=always tree | cksum
du -b -a binary | sort; du -s --apparent-size -k text; du -sb --exclude='*.txt' tree
du -l -b tree/1
df --output=target text/words | tail -1 | grep -c /
date -r text/words +%s; test text/words -nt text/table; echo "status $?"
[ -O text/secret ] && echo mine
echo changed >> text/one; md5sum -c --quiet "$OUT/md5sum"; echo "status $?"
exit 0
