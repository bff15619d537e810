# what: tar: create, list, extract, compare (-d), append, update, --sparse, hard and symbolic links,
#   gzip/xz/zstd, cpio, from and to the prefix
# needs: command cpio
# version: tar --version
# ignore: out/*.tar* out/*.cpio
# run
cd "$DATA" || exit 1
for options in '' --sparse --format=posix -z -J --zstd -j --use-compress-program=zstd; do
  tar --sort=name $options -cf "$OUT/a.tar" . && tar -tf "$OUT/a.tar" | cksum &&
    tar -df "$OUT/a.tar" && echo "same $options"
done
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - text binary names | sha256sum
mkdir "$OUT/x"; tar -xpf "$OUT/a.tar" -C "$OUT/x"
diff -r --no-dereference . "$OUT/x" && echo extracted
echo changed >> text/one; tar -df "$OUT/a.tar" 2>&1 | grep -v 'Mod time'
tar --sort=name -cf "$OUT/b.tar" text; tar -rf "$OUT/b.tar" names; tar -uf "$OUT/b.tar" text
tar -tf "$OUT/b.tar" | cksum; tar -xOf "$OUT/b.tar" text/one
tar -cf text/on.tar names binary/4097; tar -tf text/on.tar
tar -xOf text/on.tar binary/4097 | cmp - binary/4097 && echo same
tar --delete -f text/on.tar binary/4097; tar -tf text/on.tar; mkdir text/x
tar -xf text/on.tar -C text/x; cat text/x/names/-dash
tar -czf text/on.tgz tree; tar -xzf text/on.tgz -C text/x
diff -r --no-dereference tree text/x/tree && echo same; tar -cf "$OUT/c.tar" text/absent
echo "status $?"; tar -xf text/on.tgz -C text/x --overwrite tree/0; cat text/x/tree/0/0/file_00.txt
tar --sort=name -g "$OUT/snapshot" -cf "$OUT/d.tar" tree; echo new > tree/new
tar -g "$OUT/snapshot" -cf "$OUT/e.tar" tree; tar -tf "$OUT/e.tar" | grep new; rm "$OUT/snapshot"
tar -cf - text/words | tar -xOf - | cmp - text/words && echo piped
tar -T <(printf 'text/words\ntext/numbers\n') -cf - | tar -tf -
find . -depth -print0 | sort -z | cpio -0 -o -H newc --quiet > "$OUT/a.cpio"
cpio -t --quiet < "$OUT/a.cpio" | cksum; mkdir "$OUT/y"
(
  cd "$OUT/y" && cpio -idm --quiet < "$OUT/a.cpio" && diff -r --no-dereference "$DATA" . &&
    echo same
)
find text -type f | sort | cpio -pd --quiet "$OUT/z"; diff -r text "$OUT/z/text" && echo passed
exit 0
