# what: make -j and gcc with sources, headers, makefile, archive and objects on the prefix; ar, ld,
#   nm, objdump, strip, rebuilds after a change
# needs: command make; command gcc
# heavy: yes
# version: gcc --version
# ignore: *.o *.a *.gch data/src/prog
# prepare
mkdir "$DATA/src" && cd "$DATA/src" && for n in 1 2 3 4; do echo "#include \"all.h\"
int f$n(int x) { return x * $n + BASE; }" > f$n.c; done
printf '#define BASE 10\nint f1(int), f2(int), f3(int), f4(int);\n' > all.h
printf '%s\n' '#include <stdio.h>' '#include "all.h"' \
  'int main(void) { printf("%d\n", f1(1) + f2(2) + f3(3) + f4(4)); return 0; }' > main.c
printf '%b\n' 'CFLAGS = -O1 -MMD' 'prog: main.o libf.a' '\tgcc -o $@ $^' \
  'libf.a: f1.o f2.o f3.o f4.o' '\tar rcs $@ $^' '-include *.d' 'clean:' \
  '\trm -f *.o *.a *.d prog' > Makefile
# run
cd "$DATA/src" || exit 1
make -s -j4 && ./prog || exit 1; make -s -q; echo "status $?"
nm -g --defined-only libf.a | grep ' T ' | cut -d ' ' -f 3; ar t libf.a
objdump -t f1.o | grep -c f1; size prog | wc -l; strip -o "$OUT/stripped" prog && "$OUT/stripped"
rm "$OUT/stripped"
sed -i 's/10/20/' all.h; touch -d '+2 seconds' all.h; make -s -j4 2> "$OUT/skew"; ./prog
rm "$OUT/skew"; make -s clean; ls; gcc -E -P main.c | tail -2; gcc -S -o - f1.c | grep -c f1
echo 'int g( {' > bad.c; gcc -c bad.c; echo "status $?"; make -s -f ../text/absent; echo "status $?"
gcc -O0 -x c - -o prog < main.c -I. f?.c && ./prog
gcc -O0 @<(echo "-o prog main.c f1.c f2.c f3.c f4.c") && ./prog
gcc -pipe -flto -O1 -o prog main.c f?.c && ./prog
gcc -x c-header all.h -o all.h.gch && gcc -O0 -o prog main.c f?.c && ./prog
exit 0
