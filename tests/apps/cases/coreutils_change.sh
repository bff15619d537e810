# what: truncate touch -r -d shred chmod chown rm rmdir mkfifo sync fallocate, and reads after each
# version: touch --version
# run
cd "$DATA" || exit 1
show() { for f; do cksum -- "$f"; stat -c '%s %a %h' -- "$f"; done; }
show text/words; truncate -s 100 text/words; show text/words; truncate -s +50 text/words
show text/words; truncate -s 0 text/words; show text/words
truncate -r text/table text/words; show text/words; truncate -s 10 text/fresh; show text/fresh
truncate -c -s 10 text/none; echo "status $?"
cat text/one; echo two >> text/one; cat text/one; : > text/one; cat text/one; echo three > text/one
cat text/one
exec 3< text/numbers; read -r a <&3; echo "$a"; truncate -s 8 text/numbers; cat <&3
echo grown >> text/numbers; cat <&3; exec 3<&-
exec 3< text/table; rm text/table; head -n 1 <&3; cat text/table; echo "status $?"
echo other > text/table; cat text/table; tail -n 1 <&3; exec 3<&-
touch -r text/script text/long; stat -c %Y text/long; touch -d @1000000000 text/long
stat -c %Y text/long; touch -a -d @900000000 text/long; stat -c '%X %Y' text/long
touch -h -d @1000000001 tree/link; stat -c %Y tree/link; touch -m text/secret
[ text/secret -nt text/long ] && echo touched; cat text/secret
chmod 604 text/secret; stat -c %a text/secret; chmod -R g-r tree; stat -c %a tree/0/0/file_00.txt
chown 12345:54321 text/secret 2> /dev/null; stat -c '%u %g' text/secret
shred -n 1 --random-source=binary/1048576 binary/4096; cksum binary/4096
shred -n 1 -z -s 100 --random-source=binary/65536 binary/4097; head -c 100 binary/4097 | od
shred -u -n 1 binary/511; ls binary/511; echo "status $?"
fallocate -l 2000 binary/1; show binary/1
fallocate -p -o 0 -l 4096 binary/65536 && cksum binary/65536; sync text/one; sync -f text/one
echo "status $?"
mkfifo text/fifo; (cat text/script > text/fifo &); cat text/fifo; rm text/fifo; mkdir -p text/d/e
echo x > text/d/e/f; cat text/d/e/f; rmdir text/d; echo "status $?"; rm -r text/d; cat text/d/e/f
rm -f tree/1/1/file_01.txt; cat tree/hard_link | cksum; mv tree/2 tree/3; cat tree/2/0/file_02.txt
cat tree/3/0/file_02.txt | cksum; mkdir -p tree/2/0; echo again > tree/2/0/file_02.txt
cat tree/2/0/file_02.txt
rm -rf tree; ls tree; cat tree/0/0/file_00.txt; rm text/absent; echo "status $?"; rm -v text/empty
touch text/empty; cat text/empty
exit 0
