# what: gdb: a job under gdb, attach to a running job that reads, detach, break in it, calls of its
#   libc from there; strace -f of a job and on attach
# needs: command gdb; command strace; command gcc
# heavy: yes
# version: gdb --version
# ignore: out/*
# prepare
cat > "$DATA/prog.c" <<'END'
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
char got[16]; int fd;
void step(int n) { if (lseek(fd, n * 10, SEEK_SET) < 0 || read(fd, got, 10) != 10) _exit(9); }
int main(int argc, char** argv) {
  fd = open("text/words", O_RDONLY); char line[100];
  while (fgets(line, sizeof line, stdin)) {
    int n = 0; sscanf(line, "%d", &n); step(n); printf("%d %.10s\n", n, got); fflush(stdout);
  }
  printf("end %d\n", (int)lseek(fd, 0, SEEK_END)); return 3;
}
END
cd "$DATA" && gcc -g -O0 -o prog prog.c
# run
cd "$DATA" || exit 1
export DEBUGINFOD_URLS=
seq 1 5 | ./prog; echo "status $?"
seq 1 5 > "$OUT/in"
env -u LD_PRELOAD gdb -nx -batch -ex "set environment LD_PRELOAD $LD_PRELOAD" \
  -ex 'set startup-with-shell off' -ex "run < $OUT/in" ./prog < "$OUT/in" 2>&1 |
  grep -E '^[0-9]+ |^end|Inferior .* exited' | sed 's,process [0-9]*,process,'
gdb -nx -batch -ex 'break step if n == 3' -ex "run < $OUT/in" -ex 'print n' -ex finish -ex \
  'print got' -ex 'print (long)lseek(fd, 0, 1)' -ex 'print (int)read(fd, got, 4)' -ex 'print got' \
  -ex 'print (int)open("text/one", 0) > 2' -ex continue ./prog 2>&1 |
  grep -E '^\$|^[0-9]+ |^end|Inferior .* exited' | sed 's,process [0-9]*,process,'
mkfifo "$OUT/fifo"; ./prog < "$OUT/fifo" > "$OUT/attached" & pid=$!
exec 9> "$OUT/fifo"; echo 1 >&9
until grep -qs '^1 ' "$OUT/attached"; do read -r -t 0.02 < <(:); done
gdb -nx -batch -p $pid -ex 'print got' -ex 'print sizeof(got)' -ex detach 2>&1 | grep '^\$'
echo 2 >&9; until grep -qs '^2 ' "$OUT/attached"; do read -r -t 0.02 < <(:); done
strace -q -f -o "$OUT/trace" -e trace=write -p $pid 9>&- & tracer=$!
until grep -q "TracerPid:.*[1-9]" /proc/$pid/status; do read -r -t 0.02 < <(:); done
echo 3 >&9; until grep -qs '^3 ' "$OUT/attached"; do read -r -t 0.02 < <(:); done
exec 9>&-; wait $pid; echo "status $?"; wait $tracer; cat "$OUT/attached"
grep -c 'write(1' "$OUT/trace"
strace -f -q -o "$OUT/trace2" -e trace=openat,execve ./prog < "$OUT/in"; echo "status $?"
strace -f -q -o "$OUT/trace3" bash \
  -c 'cat text/one; read -r x < text/no_newline; echo "$x"; (cat < text/one)'
strace -c -f -o "$OUT/trace4" cat text/one
exit 0
