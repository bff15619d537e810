# what: sqlite3: rollback journal and WAL, 4 processes at once, backup, vacuum, dump, import,
#   integrity_check, read-only opens
# needs: command sqlite3
# version: sqlite3 --version
# ignore: data/db/* out/*.db*
# prepare
mkdir "$DATA/db" && cd "$DATA/db" &&
  for kind in delete wal truncate memory; do
    sqlite3 $kind.db "pragma journal_mode=$kind;
      create table t(id integer primary key, x text, y blob);
      with recursive c(n) as (select 1 union all select n+1 from c where n<2000)
        insert into t select n, hex(n*n), zeroblob(n % 50) from c;
      create index i on t(x);" > /dev/null
  done
# run
cd "$DATA/db" || exit 1
for kind in delete wal truncate memory; do
  db=$kind.db
  sqlite3 -readonly $db 'pragma integrity_check;
    select count(*), sum(id), max(x), total(length(y)) from t; select * from t where x = hex(81);'
  sqlite3 "file:$db?immutable=1" 'select count(*) from t'
  sqlite3 -cmd 'pragma mmap_size=1000000' $db 'select sum(length(x)) from t'
  sqlite3 $db "update t set x = x || '!' where id % 3 = 0; delete from t where id % 7 = 0;
    insert into t values(9000, 'new', null); select count(*), max(x) from t;"
  sqlite3 $db "begin; delete from t; rollback; select count(*) from t;"
  for job in 1 2 3 4; do
    sqlite3 -cmd '.timeout 60000' $db \
      "$(for n in 1 2 3 4 5; do echo "insert into t(x) values('job $job $n');"; done)" \
      > "$OUT/job$job" &
  done
  wait; cat "$OUT"/job?
  sqlite3 $db \
    "select count(*) from t where x like 'job%'; pragma integrity_check; pragma journal_mode;"
  env -u LD_PRELOAD sqlite3 -cmd '.timeout 60000' $db \
    "insert into t values(9500, 'from outside', null)"
  sqlite3 $db \
    'select x from t where id = 9500; vacuum; pragma integrity_check; select count(*) from t;'
  sqlite3 $db .dump | sed 's/([0-9]*,/(/' | sort | cksum; sqlite3 $db ".backup $OUT/$kind.db"
  sqlite3 "$OUT/$kind.db" 'pragma integrity_check; select count(*), sum(id) from t'
  sqlite3 $db 'pragma wal_checkpoint(truncate)'
  cksum < $db > "$OUT/before"; sqlite3 $db 'select sum(id) from t'
  cksum < $db | cmp - "$OUT/before" && echo unchanged; rm "$OUT/before"
done
sqlite3 delete.db "attach 'wal.db' as w; select count(*) from t join w.t using (id);
  insert into t(x) select x from w.t limit 5; select count(*) from t;"
printf '%s\n' 1,2 3,4 > "$OUT/c.csv"
sqlite3 delete.db 'create table c(a, b)' ".import --csv $OUT/c.csv c" 'select sum(a) from c'
sqlite3 delete.db ".import --csv ../text/table d" 2>&1 | head -2; echo garbage > bad.db
sqlite3 bad.db 'select 1 from t'; echo "status $?"; sqlite3 -readonly absent.db 'select 1'
echo "status $?"
exit 0
