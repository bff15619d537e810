# what: a Go program without cgo: reads the prefix by its own system calls, must be untouched, also
#   as a child with an inherited file
# needs: command go
# version: go version
# serves: no, Go does not use libc (its own write is not seen by others in the job: doc, Freshness)
# ignore: out/*
# heavy: yes
# prepare
cat > "$DATA/prog.go" <<'END'
package main
import ("crypto/md5"; "fmt"; "io"; "os"; "path/filepath"; "syscall")
func main() {
  filepath.Walk(".", func(p string, i os.FileInfo, e error) error {
    if e == nil && i.Mode().IsRegular() {
      b, e := os.ReadFile(p); fmt.Println(p, len(b), fmt.Sprintf("%x", md5.Sum(b)), e)
    }
    return nil
  })
  f, _ := os.Open("text/numbers"); b := make([]byte, 9); f.Read(b); n, _ := f.Seek(0, 1)
  fmt.Printf("%q %d\n", b, n)
  m, e := syscall.Mmap(int(f.Fd()), 0, 100, syscall.PROT_READ, syscall.MAP_PRIVATE)
  fmt.Println(len(m), e)
  os.WriteFile("text/one", []byte("from go\n"), 0o644); s, _ := os.ReadFile("text/one")
  fmt.Print(string(s)); in, _ := io.ReadAll(os.Stdin); fmt.Println(len(in))
}
END
cd "$DATA" && CGO_ENABLED=0 GO111MODULE=off go build -o prog prog.go && rm prog.go
# run
cd "$DATA" && ./prog < text/words && exec 3< text/table && read -r a <&3 && echo "$a" &&
  ./prog <&3 | tail -1
