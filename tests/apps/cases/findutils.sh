# what: find (-exec, -execdir, -newer, -samefile, -size, -empty, -delete, -printf), xargs -P -a -0
# version: find --version
# run
cd "$DATA" || exit 1
find . | sort; find "$DATA" -type f -size +100k | sed "s|$DATA||" | sort; find . -empty
find . -newer text/words -type f | wc -l
find . -samefile tree/hard_link | sort; find . -inum "$(stat -c %i text/words)"; find -L . -xtype l
find . -lname '*file*'; find . -perm 400; find text -links 1 | wc -l
find . -type f -printf '%s %m %n %T@ %p\n' | sort | cksum
find tree -type f -exec cksum {} \; | sort; find tree -type f -exec cksum {} + | sort | cksum
find tree -name '*.txt' -execdir cat {} \; | sort | cksum
find text -name 'o*' -exec cat {} + -exec cat {} +
find text -type f -exec grep -q needle {} \; -print
find . -type f -print0 | sort -z | xargs -0 -n 3 -P 4 cksum | sort
find . -type f -print0 | sort -z | xargs -0 cat | cksum
xargs -a text/numbers -n 200 echo | cksum; xargs < text/one printf '<%s>'
xargs -n 1 -I@ head -n @ text/words < <(echo 2)
xargs -P 8 -n 1 sh -c 'read -r a < text/words; echo $0' < <(head -40 text/numbers) | sort -n | cksum
find tree/1 -name 'file_0*' -delete; ls tree/1/*; cat tree/1/1/file_07.txt
cat tree/hard_link | cksum
find text -name numbers -exec sh -c 'echo extra >> "$1"; tail -1 "$1"' _ {} \;
find . -maxdepth 1 -readable -writable | sort; find absent; echo "status $?"
find text -name absent -quit; find text -regex '.*/[lo].*' | sort
find . -files0-from <(printf 'text\0') -name one
exit 0
