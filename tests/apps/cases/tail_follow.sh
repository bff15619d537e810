# what: tail -f --pid, -F over a rename, tail -c, with a writer under and beside the library
# version: tail --version
# run
cd "$DATA" || exit 1
wait_for() { until grep -qs "$1" "$OUT/$2"; do read -r -t 0.02 < <(:); done; }
sleep 300 & alive=$!
tail -n 1 -s 0.05 -f --pid=$alive text/numbers > "$OUT/f" & follower=$!
wait_for 1000 f
for n in 1 2 3; do echo "line $n" >> text/numbers; wait_for "line $n" f; done
env -u LD_PRELOAD bash -c 'echo "from outside" >> text/numbers'; wait_for outside f
kill $alive; wait $follower; cat "$OUT/f"
sleep 300 & alive=$!
tail -n 1 -s 0.05 -F --pid=$alive text/one > "$OUT/F" 2> "$OUT/F.err" & follower=$!
wait_for one F
mv text/one text/old; echo "another file" > text/one; wait_for another F
echo "its second" >> text/one; wait_for second F
truncate -s 0 text/one; until grep -qs truncated "$OUT/F.err"; do read -r -t 0.02 < <(:); done
echo "after all" >> text/one; wait_for after F
kill $alive; wait $follower; cat "$OUT/F"; rm "$OUT/F.err"
exit 0
