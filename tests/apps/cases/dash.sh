# what: dash: redirections, exec n<, here-documents, sourcing, read, command substitution, trap
# needs: command dash
# version: dpkg-query -W dash
# run
cat > "$OUT/run" <<'END'
cd "$DATA" || exit 1
exec 3< text/numbers 4<> text/one
read a <&3; read b <&3; echo "$a $b"
(read c <&3; echo "child $c"); read c <&3; echo "$c"
read x <&4; echo more >&4; cat text/one
exec 4<&-
while read a b c; do n=$((n + c)); done < text/table; echo $n
cat <<X
$(cat text/no_newline)
X
echo tail >> text/one; cat < text/one
. "$DATA/text/script"
END
dash "$OUT/run" arg; echo "status $?"
dash -c 'cat < absent; echo $?; set -C; echo x > "$DATA/text/one"; echo $?; cat "$DATA/text/one"'
dash -c 'trap "cat < text/one" EXIT; cd "$DATA"; read a < text/numbers; echo "$a"'
dash < "$DATA/text/script"; echo "status $?"
exit 0
