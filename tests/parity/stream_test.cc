// More tests of stdio: buffers, orientation, streams on fds with every mode, positions, and streams
// that the library does not serve.
#include <locale.h>
#include <stdio_ext.h>
#include <wchar.h>

#include <climits>

#include "tests/support/parity_case.h"

extern "C" int fcloseall(void);

namespace {

const char* k_text = "alpha beta\n\ngamma;delta;epsilon\n1 0x1f 077 -5 3.25e2\nend";

}  // namespace

PARITY(Stream, FdsOpenedWithEveryMode) {
  const char* const path = t.text("a", k_text);
  for (const char* mode : {"r", "rb", "re", "r+", "w", "w+", "a", "a+", "rx", "rm", "rc",
                           "r,ccs=UTF-8", "", "q", "br", "er"}) {
    t.line(mode);
    const int fd = CALL(open(path, O_RDONLY));
    FILE* const stream = STDIO(nullptr, fdopen(fd, mode));
    if (stream == nullptr) {
      CALL(close(fd));
      continue;
    }
    CALL(fileno(stream));
    CALL(fcntl(fd, F_GETFD));
    CALL(fgetc(stream));
    CALL(ftell(stream));
    CALL(fputc('x', stream));
    CALL(ferror(stream));
    CALL(fclose(stream));
    CALL(fcntl(fd, F_GETFD));
  }
  CALL(fdopen(CALL(open(path, O_PATH)), "r"));
  CALL(fdopen(CALL(open(path, O_WRONLY)), "r"));
}

PARITY(Stream, ModesWithFlags) {
  const char* const path = t.text("a", k_text);
  for (const char* mode : {"re", "rm", "x", "rx", "r+", "r+e", "ae", "a", "r,ccs=UTF-8",
                           "r,ccs=UTF-16", "r,ccs=none-such"}) {
    t.line(mode);
    FILE* const stream = STDIO(nullptr, fopen(path, mode));
    if (stream == nullptr) continue;
    CALL(fcntl(fileno(stream), F_GETFD));
    CALL(fcntl(fileno(stream), F_GETFL));
    CALL(fclose(stream));
  }
}

PARITY(Stream, ScansAndDelimiters) {
  FILE* const stream = STDIO(nullptr, fopen(t.text("a", k_text), "r"));
  char one[40] = {}, two[40] = {};
  CALL(fscanf(stream, "%39s %39[a-z]", one, two));
  t.line(std::string(one) + "|" + two);
  char* line = nullptr;
  size_t room = 0;
  CALL(getdelim(&line, &room, ';', stream));
  t.line(line);
  CALL(getdelim(&line, &room, ';', stream));
  t.line(line);
  CALL(getline(&line, &room, stream));
  t.line(line);
  int a = 0, b = 0, c = 0, d = 0;
  float f = 0;
  CALL(fscanf(stream, "%d %i %i %d %f", &a, &b, &c, &d, &f));
  t.line(std::to_string(a) + " " + std::to_string(b) + " " + std::to_string(c) + " " +
         std::to_string(d) + " " + std::to_string(f));
  CALL(fscanf(stream, "%d", &a));
  CALL(fgetc(stream));
  CALL(getdelim(&line, &room, 'z', stream));
  t.line(line);
  CALL(getline(&line, &room, stream));
  CALL(fscanf(stream, "%d", &a));
  CALL(feof(stream));
  free(line);
  CALL(fclose(stream));
}

PARITY(Stream, PositionsBeyondAndBack) {
  FILE* const stream = STDIO(nullptr, fopen(t.file("a", 20000), "r"));
  fpos_t place;
  fpos64_t place64;
  CALL(fseeko(stream, 1L << 35, SEEK_SET));
  CALL(ftello(stream));
  CALL(fgetc(stream));
  CALL(feof(stream));
  CALL(fseeko(stream, LONG_MAX, SEEK_SET));
  CALL(fseeko(stream, LONG_MAX, SEEK_CUR));
  CALL(fseeko(stream, LONG_MIN, SEEK_END));
  CALL(fseeko64(stream, 100, SEEK_SET));
  CALL(fgetpos(stream, &place));
  CALL(fgetc(stream));
  CALL(fgetpos64(stream, &place64));
  CALL(fseek(stream, 0, SEEK_END));
  CALL(fgetc(stream));
  CALL(fsetpos(stream, &place));
  CALL(fgetc(stream));
  CALL(fsetpos64(stream, &place64));
  CALL(ungetc('u', stream));
  CALL(ftell(stream));
  CALL(fseek(stream, 0, SEEK_CUR));
  CALL(fgetc(stream));
  CALL(ungetc(EOF, stream));
  CALL(lseek(fileno(stream), 5000, SEEK_SET));
  CALL(fflush(stream));
  CALL(ftell(stream));
  CALL(fgetc(stream));
  __fpurge(stream);
  CALL(fgetc(stream));
  CALL(ftell(stream));
  CALL(fclose(stream));
}

PARITY(Stream, BuffersAndQuestions) {
  for (const std::size_t size : {1UL, 2UL, 100UL, 4096UL, 8192UL, 65536UL}) {
    t.line("buffer of " + std::to_string(size));
    std::string room(size, '\0');
    const std::string name = "f" + std::to_string(size);
    FILE* const stream = STDIO(nullptr, fopen(t.file(name, 30000), "r"));
    CALL(setvbuf(stream, room.data(), _IOFBF, size));
    CALL(fgetc(stream));
    CALL(__fbufsize(stream));
    // Known limit (doc/SEMANTICS.md): how far the stream reads ahead into a buffer of 8 KiB that
    // the program provides.
    if (size != 8192) CALL(lseek(fileno(stream), 0, SEEK_CUR));
    char got[300];
    CALL(fread(got, 1, sizeof got, stream));
    t.bytes("got", got, sizeof got);
    CALL(ftell(stream));
    CALL(__freading(stream));
    CALL(__fwriting(stream));
    CALL(__flbf(stream));
    CALL(__fpending(stream));
    CALL(fclose(stream));
  }
  FILE* const stream = STDIO(nullptr, fopen(t / "f1", "r"));
  CALL(setvbuf(stream, nullptr, 99, 0));
  setlinebuf(stream);
  CALL(fgetc(stream));
  setbuffer(stream, nullptr, 0);
  CALL(fgetc(stream));
  CALL(fgets(&std::string(10, ' ')[0], 1, stream) != nullptr);
  CALL(fread(nullptr, 0, 5, stream));
  CALL(fclose(stream));
}

PARITY(Stream, SharedWithFdsAndDups) {
  const int fd = CALL(open(t.file("a", 9000), O_RDONLY));
  const int copy = CALL(dup(fd));
  FILE* const stream = STDIO(nullptr, fdopen(fd, "r"));
  CALL(fgetc(stream));
  CALL(lseek(copy, 0, SEEK_CUR));
  CALL(fclose(stream));
  CALL(lseek(copy, 0, SEEK_CUR));
  char got[4] = {};
  CALL(read(copy, got, 4));
  t.bytes("got", got, 4);
  FILE* const second = STDIO(nullptr, fdopen(copy, "r"));
  CALL(dup2(CALL(open("/dev/null", O_RDONLY)), copy));
  CALL(fgetc(second));
  CALL(feof(second));
  CALL(fclose(second));
  FILE* const third = STDIO(nullptr, fopen(t / "a", "r"));
  FILE* const pipe = STDIO(nullptr, popen("echo from the pipe", "r"));
  CALL(fgetc(third));
  CALL(fgetc(pipe));
  CALL(pclose(pipe));
  CALL(fgetc(third));
  CALL(fclose(third));
}

PARITY(Stream, StreamsWithoutAFile) {
  char memory[20] = "in memory";
  FILE* const stream = STDIO(nullptr, fmemopen(memory, sizeof memory, "r+"));
  CALL(fileno(stream));
  CALL(fgetc(stream));
  CALL(fseek(stream, 9, SEEK_SET));  // not from the end, which glibc before 2.22 computes
                                     // differently
  CALL(fputs("more", stream));
  CALL(fclose(stream));
  char* text = nullptr;
  size_t n = 0;
  FILE* const growing = STDIO(nullptr, open_memstream(&text, &n));
  CALL(fprintf(growing, "%d", 12345));
  CALL(fclose(growing));
  t.line(text);
  free(text);
  const cookie_io_functions_t nothing{};
  FILE* const cookie = STDIO(nullptr, fopencookie(nullptr, "r", nothing));
  CALL(fgetc(cookie));
  CALL(fileno(cookie));
  CALL(fclose(cookie));
  FILE* const again = STDIO(nullptr, fopen(t.text("a", k_text), "r"));
  CALL(fgetc(again));
  CALL(fclose(again));
}

PARITY(Stream, ReopenedInEveryWay) {
  t.text("a", k_text);
  t.text("b", "bytes of b");
  FILE* stream = STDIO(nullptr, fopen(t / "a", "r"));
  CALL(fgetc(stream));
  stream = STDIO(nullptr, freopen(nullptr, "rb", stream));
  if (stream != nullptr) {
    CALL(ftell(stream));
    CALL(fgetc(stream));
    stream = STDIO(nullptr, freopen(t / "b", "re", stream));
    CALL(fcntl(fileno(stream), F_GETFD));
    CALL(fgetc(stream));
    stream = STDIO(nullptr, freopen(t / "a", "r+", stream));
    CALL(fputc('X', stream));
    CALL(fseek(stream, 0, SEEK_SET));
    CALL(fgetc(stream));
    stream = STDIO(nullptr, freopen(t.root().c_str(), "r", stream));
    CALL(fgetc(stream));
    CALL(fclose(stream));
  }
  t.line("modes that are none");
  stream = STDIO(nullptr, fopen(t / "b", "r"));
  STDIO(nullptr, freopen(t / "b", "q", stream));
}

PARITY(Stream, RemainsIfAReopenFails) {
  t.text("a", k_text);
  t.text("b", "bytes of b");
  FILE* const stream = STDIO(nullptr, fopen(t / "a", "r"));
  CALL(fgetc(stream));
  for (const char* const mode : {"r", "w", "q"}) {
    t.line(mode);
    STDIO(nullptr, freopen(t / "missing/c", mode, stream));
    const int fd = CALL(open(t / "b", O_RDONLY));
    CALL(fileno(stream));
    CALL(fgetc(stream));
    CALL(fputc('X', stream));
    EXPECT_EQ(STDIO(nullptr, freopen(t / "a", "r", stream)), stream);
    CALL(fileno(stream));
    CALL(fgetc(stream));
    CALL(fcntl(fd, F_GETFD));
    CALL(close(fd));
  }
  STDIO(nullptr, freopen(t / "missing/c", "r", stream));
  const int fd = CALL(open(t / "b", O_RDONLY));
  CALL(fclose(stream));
  CALL(fcntl(fd, F_GETFD));
  CALL(close(fd));
}

PARITY(Stream, WideTextAfterAReopenForWriting) {
  setlocale(LC_CTYPE, "C.UTF-8");
  FILE* stream = STDIO(nullptr, fopen(t.text("a", k_text), "r"));
  CALL(fgetc(stream));
  stream = STDIO(nullptr, freopen(t / "out", "w", stream));
  CALL(fputwc(L'\u00fc', stream));
  CALL(fputws(L"ber\n", stream));
  CALL(fclose(stream));
  setlocale(LC_CTYPE, "C");
  stream = STDIO(nullptr, fopen(t / "out", "r"));
  for (int i = 0; i < 7; ++i) CALL(fgetc(stream));
  CALL(fclose(stream));
}

PARITY(Stream, OverMemoryLeavesFdsAlone) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  // libc does not initialize the fd of such a stream, so it is what this memory had before.
  constexpr std::size_t k_least = 256, k_most = 1024;
  for (std::size_t size = k_least; size <= k_most; size += 16) {
    std::vector<int> used(size / sizeof(int), fd);
    t.line(used.back() == fd ? "used" : "unused");
  }
  char* text = nullptr;
  std::size_t size = 0;
  FILE* const stream = open_memstream(&text, &size);
  CALL(fputs("text", stream));
  CALL(fclose(stream));
  free(text);
  char byte = 0;
  CALL(read(fd, &byte, 1));
  CALL(close(fd));
}

PARITY(Stream, AllAreClosedTogether) {
  t.in_child([&] {
    FILE* const one = STDIO(nullptr, fopen(t.file("a", 100), "r"));
    FILE* const two = STDIO(nullptr, fopen(t / "a", "r"));
    const int fds[2] = {CALL(fileno(one)), CALL(fileno(two))};
    CALL(fgetc(one));
    CALL(fcloseall());
    for (const int fd : fds) CALL(fcntl(fd, F_GETFD));
    char byte = 0;
    for (const int fd : fds) CALL(read(fd, &byte, 1));
    CALL(open(t / "a", O_RDONLY));
  });
}

PARITY(Stream, WideTextByItsMode) {
  setlocale(LC_CTYPE, "C.UTF-8");
  FILE* const stream = STDIO(
      nullptr, fopen(t.text("a", "gr\xc3\xbc\xc3\x9f\x65 an alle\nzweite Zeile\n"), "r,ccs=UTF-8"));
  wchar_t line[40] = {};
  CALL(fwide(stream, 0));
  CALL(fgetws(line, 40, stream) != nullptr);
  t.bytes("line", line, sizeof line);
  CALL(fgetwc(stream));
  CALL(ungetwc(L'y', stream));
  CALL(fwscanf(stream, L"%ls", line));
  t.bytes("word", line, sizeof line);
  CALL(fclose(stream));
  setlocale(LC_CTYPE, "C");
  FILE* const plain = STDIO(nullptr, fopen(t / "a", "r"));
  CALL(fwide(plain, 1) > 0);
  CALL(fgetwc(plain));
  CALL(fgetws(line, 40, plain) != nullptr);
  CALL(fwscanf(plain, L"%ls", line));
  CALL(fgetc(plain));
  CALL(fclose(plain));
}
