# what: static children (busybox): with files by name, by redirection, by inherited fds, applets in
#   a pipeline with libc's programs
# needs: command busybox
# version: busybox
# run
cd "$DATA" || exit 1
busybox cat text/one; busybox md5sum text/* binary/*; busybox wc -l < text/words
busybox head -n 2 < text/numbers; cat text/words | busybox sort | busybox tail -n 1
exec 3< text/numbers; read -r a <&3; busybox head -c 4 <&3; read -r b <&3; echo "$a $b"
busybox sh -c 'read -r x <&3; echo $x; cat text/one; (cat <&3) | tail -n 1'; read -r c <&3
echo "end $c"
busybox sh -c 'while read -r a b c; do s=$((s + c)); done < text/table; echo $s
  exec 4< text/one; read x <&4; echo $x; echo more >> text/words; tail -n 1 text/words'
env -i busybox cat text/no_newline
find text -name 'n*' -exec busybox cksum {} +; xargs -a text/one -n 1 busybox echo
busybox xargs -a text/one cat 2>&1; exec 5< text/no_newline; busybox cat /proc/self/fd/5; echo
