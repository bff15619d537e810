#!/bin/sh
# Makes a folder that measures threads on a machine with Python 3 alone: its run.sh prints the
# tables within four minutes.
#   folder.sh LIBRARY FOLDER [BASE]      BASE: another library, to be measured beside it
# CC is the compiler of the reader: for a machine with an older glibc that of a release
# (doc/RELEASE.md).
set -eu
here=$(dirname "$0")
mkdir -p "$2"
cp "$1" "$2/libcubeshim.so"
base=
if [ $# -gt 2 ]; then
  cp "$3" "$2/base.so"
  base='--base "$here/base.so"'
fi
cp "$here/threads.py" "$2"
${CC:-cc} -O2 -pthread -o "$2/reader" "$here/reader.c"
cat > "$2/run.sh" <<END
#!/bin/sh
here=\$(cd "\$(dirname "\$0")" && pwd)
exec python3 "\$here/threads.py" --library "\$here/libcubeshim.so" --reader "\$here/reader" $base \\
  "\$@"
END
chmod +x "$2/run.sh" "$2/reader"
