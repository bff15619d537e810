# what: rsync from and to the prefix: -a, --checksum, --inplace, --append, --delete, --partial, -H
#   -S, --link-dest, a second run that does nothing
# needs: command rsync
# version: rsync --version
# run
cd "$DATA" || exit 1
go() { rsync --itemize-changes --out-format='%i %n' "$@" | sort; }
go -aHS ./ "$OUT/copy"; echo "second:"; go -aHS ./ "$OUT/copy"; echo "checksums:"
go -aHSc ./ "$OUT/copy"; diff -r --no-dereference . "$OUT/copy" && echo same
echo changed > text/one; truncate -s 50000 binary/65536; rm tree/0/0/file_06.txt
echo new > names/new; go -a --delete ./ "$OUT/copy"
diff -r --no-dereference . "$OUT/copy" && echo same
echo more >> "$OUT/copy/text/words"
printf x | dd of="$OUT/copy/binary/1048576" bs=1 seek=5000 conv=notrunc status=none
rm "$OUT/copy/text/table"; mkdir "$OUT/copy/extra"
echo "back:"; go -ac --inplace --no-whole-file "$OUT/copy/" ./
diff -r --no-dereference . "$OUT/copy" | sort; cksum binary/1048576 text/words
go -a --delete "$OUT/copy/" ./; ls text/table; cat text/words | tail -1
go -a --append-verify text/words "$OUT/copy/text/words"
go -a --whole-file -I text/ "$OUT/copy/text"; go -a --no-whole-file -I binary/ "$OUT/copy/binary"
cmp binary/1048576 "$OUT/copy/binary/1048576" && echo same
go -a --link-dest="$OUT/copy/text" text/ "$OUT/linked"; stat -c %h "$OUT/linked/words"
rsync -a --files-from=<(printf 'text/one\nnames/-dash\n') . "$OUT/some"
rsync -a --include='*/' --include='*.txt' --exclude='*' . "$OUT/filtered"
find "$OUT/filtered" -type f | wc -l; rsync -a text/absent "$OUT"; echo "status $?"
rsync -a --remove-source-files names/ "$OUT/moved"; ls names; go -rn --delete "$OUT/moved/" names/
rsync -a --sparse binary/sparse "$OUT/sparse"; cmp binary/sparse "$OUT/sparse" && echo same
rsync -a --delete-excluded --backup --suffix=.old "$OUT/moved/" text/; ls text
rsync -a -z --compress-choice=zlib --no-whole-file text/ binary/
cmp text/long binary/long && echo same
rsync --list-only --no-motd tree/1/ | awk '{ print $1, $2, $3, $5 }'
exit 0
