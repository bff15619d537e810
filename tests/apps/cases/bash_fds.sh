# what: bash: exec 3<, {fd}<, dup and move of fds, shared offsets with children, read -u -n -N -d
#   -t, mapfile -u, /dev/fd
# version: bash --version
# run
cd "$DATA" || exit 1
exec 3< text/numbers
read -r -u 3 a; read -r b <&3; echo "$a $b"
head -c 20 <&3 > "$OUT/head"; cksum < "$OUT/head"
read -r -u 3 c; echo "$c"
exec 4<&3; read -r -u 4 d; read -r -u 3 e; echo "$d $e"
exec 5<&4-; read -r -u 4 f; echo "status $?"; read -r -u 5 f; echo "$f"
(read -r -u 5 g; echo "child $g"); read -r -u 5 g; echo "parent $g"
cat <&5 | cksum
read -r -u 3 h; echo "at the end $? '$h'"
exec 3<&- 5<&-
exec {number}< text/table
read -r -u "$number" a b c; echo "$a $b $c"
mapfile -u "$number" -n 3 lines; printf '%s' "${lines[@]}"
mapfile -t rest <&"$number"; echo "${#rest[@]} ${rest[-1]}"
exec {number}<&-
mapfile -t -s 10 -n 5 -d ' ' parts < text/long; echo "${parts[*]}"
read -r -N 7 x < text/words; echo "$x"
read -r -n 3 x < text/words; echo "$x"
read -r -d e x < text/one; echo "$x"
read -r -t 5 x < text/one; echo "$x"
read -r x < text/no_newline; echo "$x"
{ read -r x; read -r y; echo "$? $y"; } < text/no_newline
exec 7< text/one
cat /dev/fd/7 /proc/self/fd/7
cat <&7; cat <&7
readlink /proc/$$/fd/7 | sed "s|$DATA|DATA|"
ls -l /proc/self/fd/7 | sed "s|.* -> ||"
exec 0< text/table
read -r a; echo "$a"; exec cat
