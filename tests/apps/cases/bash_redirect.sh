# what: bash: < > >> <> >| 2>&1, here-documents and strings, noclobber, redirected loops and
#   functions
# version: bash --version
# run
cd "$DATA" || exit 1
cat < text/one
wc -l < text/numbers
read -r line < text/numbers; echo "$line"
while read -r a b c; do ((sum += c)); done < text/table; echo "sum $sum"
echo more >> text/one; cat text/one
echo new > text/new; cat < text/new
echo XX 1<> text/one; cat text/one
{ read -r first; echo "read $first"; echo appended >&0; } <> text/new; cat text/new
set -o noclobber
echo no > text/one; echo "status $?"
echo yes >| text/one; cat text/one
cat <<END
$(< text/no_newline)
END
cat <<< "$(< text/no_newline)"
cat < text/absent; echo "status $?"
cat text/absent text/one 2>&1 | cat
cat < text; echo "status $?"
show() { cat; } < text/no_newline
show; show
for f in tree/0/*/*; do read -r word number < "$f"; echo "$word $number"; done
echo "$(<text/words)" | cksum
x=$(cat text/long); echo ${#x}
bytes=$(tr -d '\0' < binary/4097 | cksum); echo "$bytes"
exit 0
