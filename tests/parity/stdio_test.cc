// stdio streams over covered files.
#include <stdio_ext.h>

#include "tests/support/parity_case.h"

using cube::parity::function;

namespace {

const char* k_poem = "first line\nsecond line\n\n42 3.5 word\nlast without end";

void read_all(cube::parity::Case& t, FILE* stream) {
  char got[20000];
  const size_t n = STDIO(0UL, fread(got, 1, sizeof got, stream));
  t.bytes("fread", got, n);
  t.line(std::string("eof ") + (feof(stream) ? "1" : "0") + " error " +
         (ferror(stream) ? "1" : "0"));
}

}  // namespace

PARITY(Stdio, EverySymbolOpensTheSame) {
  for (const char* name : {"fopen", "fopen64"}) {
    FILE* const stream = function<FILE*(const char*, const char*)>(name)(t.file(name, 10000), "r");
    ASSERT_NE(stream, nullptr);
    t.line(name + std::to_string(fileno(stream)));
    t.expect_served(fileno(stream));
    read_all(t, stream);
    CALL(fclose(stream));
  }
}

PARITY(Stdio, ModesOpenOrAreRefused) {
  int n = 0;
  for (const char* mode : {"r",  "rb",          "re",  "rbe", "rm", "rt",  "r+", "rb+", "r+b", "w",
                           "wb", "we",          "a",   "a+",  "w+", "x",   "wx", "rx",  "",    "z",
                           "br", "r,ccs=UTF-8", "rec", "r e", "rw", "r+e", "rc", "rmb+"}) {
    t.line(mode);
    const char* const path = t.text("f" + std::to_string(n++), k_poem);
    FILE* const stream = STDIO(nullptr, fopen(path, mode));
    if (stream == nullptr) continue;
    CALL(fileno(stream));
    CALL(fcntl(fileno(stream), F_GETFL));
    CALL(fcntl(fileno(stream), F_GETFD));
    CALL(fgetc(stream));
    t.line(std::string("error ") + (ferror(stream) ? "1" : "0"));
    CALL(ftell(stream));
    CALL(__freadable(stream));
    CALL(__fwritable(stream));
    CALL(fputc('X', stream));
    CALL(fclose(stream));
    const int fd = CALL(open(path, O_RDONLY));
    char got[200] = {};
    CALL(read(fd, got, sizeof got));
    t.bytes("after", got, sizeof got);
    CALL(close(fd));
  }
  CALL(fopen(t / "none", "r"));
  EXPECT_EQ(errno, ENOENT);
  CALL(fopen(t.dir("d"), "r+"));
  FILE* const directory = STDIO(nullptr, fopen(t / "d", "r"));
  CALL(fgetc(directory));
  CALL(fclose(directory));
  CALL(fopen("", "r"));
}

PARITY(Stdio, LinesWordsAndCharacters) {
  FILE* const stream = STDIO(nullptr, fopen(t.text("f", k_poem), "r"));
  t.expect_served(fileno(stream));
  char line[100];
  CALL(fgets(line, sizeof line, stream));
  t.line(line);
  CALL(ftell(stream));
  char* whole = nullptr;
  size_t room = 0;
  CALL(getline(&whole, &room, stream));
  t.line(whole);
  CALL(getdelim(&whole, &room, '\n', stream));
  int number = 0;
  double fraction = 0;
  char word[20] = {};
  CALL(fscanf(stream, "%d %lf %19s", &number, &fraction, word));
  t.line(std::to_string(number) + " " + std::to_string(fraction) + " " + word);
  CALL(fgetc(stream));
  CALL(getc(stream));
  CALL(ungetc('q', stream));
  CALL(ftell(stream));
  CALL(fgetc(stream));
  CALL(ungetc('l', stream));
  CALL(ungetc('m', stream));
  STDIO(nullptr, fgets(line, sizeof line, stream));
  t.line(line);
  STDIO(nullptr, fgets(line, sizeof line, stream));
  CALL(feof(stream));
  CALL(ferror(stream));
  clearerr(stream);
  CALL(feof(stream));
  CALL(fgetc(stream));
  CALL(feof(stream));
  free(whole);
  CALL(fclose(stream));
}

PARITY(Stdio, SeekAndTell) {
  FILE* const stream = STDIO(nullptr, fopen(t.file("f", 20000), "r"));
  for (const long at : {0L, 10000L, 19999L, 20000L, 30000L, 5L}) {
    CALL(fseek(stream, at, SEEK_SET));
    CALL(ftell(stream));
    CALL(fgetc(stream));
    CALL(ftello(stream));
  }
  CALL(fseek(stream, -10, SEEK_END));
  CALL(fgetc(stream));
  CALL(fseeko(stream, 5, SEEK_CUR));
  CALL(fgetc(stream));
  CALL(ftell(stream));
  CALL(fseek(stream, -3, SEEK_CUR));
  CALL(fgetc(stream));
  CALL(fseek(stream, -1, SEEK_SET));
  EXPECT_EQ(errno, EINVAL);
  CALL(fseek(stream, 0, 77));
  CALL(fseek(stream, -30000, SEEK_CUR));
  CALL(ftell(stream));
  CALL(fgetc(stream));
  rewind(stream);
  CALL(ftell(stream));
  fpos_t position;
  CALL(fgetc(stream));
  CALL(fgetpos(stream, &position));
  CALL(fseek(stream, 500, SEEK_SET));
  CALL(fsetpos(stream, &position));
  CALL(ftell(stream));
  read_all(t, stream);
  CALL(ftell(stream));
  CALL(fseeko64(stream, 100, SEEK_SET));
  CALL(ftello64(stream));
  CALL(lseek(fileno(stream), 0, SEEK_CUR));
  CALL(fclose(stream));
}

PARITY(Stdio, FdAndStreamShareOneOffset) {
  const int fd = CALL(open(t.file("f", 20000), O_RDONLY));
  CALL(lseek(fd, 100, SEEK_SET));
  FILE* const stream = STDIO(nullptr, fdopen(fd, "r"));
  CALL(ftell(stream));
  CALL(fgetc(stream));
  CALL(ftell(stream));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(fseek(stream, 0, SEEK_CUR));
  // Old glibcs leave the offset (SEMANTICS, Limits).
  if (cube::parity::is_libc_from("2.28")) CALL(lseek(fd, 0, SEEK_CUR));
  CALL(fflush(stream));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(lseek(fd, 7000, SEEK_SET));
  CALL(fgetc(stream));
  CALL(fclose(stream));
  CALL(close(fd));
  CALL(fdopen(-1, "r"));
  CALL(fdopen(fd, "r"));
  EXPECT_EQ(errno, EBADF);
}

PARITY(Stdio, FdopenChecksTheModes) {
  const int fd = CALL(open(t.file("f", 100), O_RDONLY));
  for (const char* mode : {"w", "a", "r+", "w+", "z", ""}) {
    t.line(mode);
    FILE* const refused = STDIO(nullptr, fdopen(fd, mode));
    EXPECT_EQ(refused, nullptr);
  }
  FILE* const stream = STDIO(nullptr, fdopen(fd, "re"));
  CALL(fcntl(fd, F_GETFD));
  CALL(fputc('x', stream));
  CALL(ferror(stream));
  CALL(fclose(stream));
}

PARITY(Stdio, TwoStreamsOnDupsShareTheOffset) {
  const int fd = CALL(open(t.file("f", 100), O_RDONLY));
  FILE* const one = STDIO(nullptr, fdopen(fd, "r"));
  FILE* const two = STDIO(nullptr, fdopen(CALL(dup(fd)), "r"));
  setvbuf(one, nullptr, _IONBF, 0);
  setvbuf(two, nullptr, _IONBF, 0);
  CALL(fgetc(one));
  CALL(fgetc(two));
  CALL(fgetc(one));
  CALL(ftell(two));
  CALL(fclose(one));
  CALL(fgetc(two));
  CALL(fclose(two));
}

PARITY(Stdio, BuffersOfEveryKind) {
  static char buffer[70000];
  for (const int how : {_IONBF, _IOLBF, _IOFBF}) {
    FILE* const stream = STDIO(nullptr, fopen(t.file("f" + std::to_string(how), 70000), "r"));
    CALL(setvbuf(stream, how == _IONBF ? nullptr : buffer, how, sizeof buffer));
    CALL(fgetc(stream));
    CALL(lseek(fileno(stream), 0, SEEK_CUR));
    CALL(fgetc(stream));
    CALL(ftell(stream));
    char got[100];
    CALL(fread(got, 10, 10, stream));
    t.bytes("got", got, 100);
    CALL(fclose(stream));
  }
  FILE* const stream = STDIO(nullptr, fopen(t / "f0", "r"));
  setbuf(stream, nullptr);
  CALL(fgetc(stream));
  CALL(lseek(fileno(stream), 0, SEEK_CUR));
  CALL(fclose(stream));
}

PARITY(Stdio, HowMuchAStreamReadsAhead) {
  FILE* const stream = STDIO(nullptr, fopen(t.file("f", 20000), "r"));
  CALL(fgetc(stream));
  // cv2 and other programs mix stdio and fd calls. The stream reads ahead by one block of the file
  // system.
  CALL(lseek(fileno(stream), 0, SEEK_CUR));
  CALL(fclose(stream));
}

PARITY(Stdio, WritesAreRefused) {
  FILE* const stream = STDIO(nullptr, fopen(t.file("f", 100), "r"));
  CALL(fputc('x', stream));
  EXPECT_EQ(errno, EBADF);
  CALL(ferror(stream));
  CALL(fwrite("abc", 1, 3, stream));
  CALL(fprintf(stream, "x"));
  clearerr(stream);
  CALL(fgetc(stream));
  CALL(fclose(stream));
}

PARITY(Stdio, ReopenOnCoveredUncoveredAndNothing) {
  const char* const covered = t.file("f", 100);
  const char* const second = t.file("g", 100);
  for (const char* name : {"freopen", "freopen64"}) {
    auto* const reopen = function<FILE*(const char*, const char*, FILE*)>(name);
    t.line(name);
    FILE* const stream = STDIO(nullptr, fopen(covered, "r"));
    CALL(fgetc(stream));
    FILE* again = STDIO(nullptr, reopen(second, "r", stream));
    t.line(again == stream ? "same FILE" : "another FILE");
    CALL(fileno(again));
    CALL(ftell(again));
    read_all(t, again);
    again = STDIO(nullptr, reopen("/etc/hostname", "r", again));
    CALL(fileno(again));
    CALL(fgetc(again));
    again = STDIO(nullptr, reopen(covered, "r", again));
    CALL(fileno(again));
    read_all(t, again);
    again = STDIO(nullptr, reopen(nullptr, "r", again));
    if (again != nullptr) {
      CALL(fileno(again));
      CALL(ftell(again));
      read_all(t, again);
      again = STDIO(nullptr, reopen(t / "none", "r", again));
      EXPECT_EQ(again, nullptr);
    }
    const int next = CALL(open("/dev/null", O_RDONLY));
    CALL(close(next));
  }
}

PARITY(Stdio, ReopenForWriting) {
  FILE* stream = STDIO(nullptr, fopen(t.file("f", 100), "r"));
  CALL(fgetc(stream));
  stream = STDIO(nullptr, freopen(t / "out", "w", stream));
  CALL(fputs("written", stream));
  CALL(fgetc(stream));
  CALL(fclose(stream));
  stream = STDIO(nullptr, fopen(t / "out", "r"));
  read_all(t, stream);
  stream = STDIO(nullptr, freopen(t / "out", "a+", stream));
  CALL(fputs(" more", stream));
  CALL(fseek(stream, 0, SEEK_SET));
  read_all(t, stream);
  CALL(fclose(stream));
}

PARITY(Stdio, StandardInputReopened) {
  t.in_child([&] {
    FILE* const stream = STDIO(nullptr, freopen(t.text("f", k_poem), "r", stdin));
    EXPECT_EQ(stream, stdin);
    CALL(fileno(stdin));
    char line[100] = {};
    CALL(fgets(line, sizeof line, stdin));
    t.line(line);
    int c = CALL(getchar());
    CALL(ungetc(c, stdin));
    CALL(scanf("%99s", line));
    t.line(line);
  });
}

PARITY(Stdio, UnlockedAndWideForms) {
  FILE* const stream = STDIO(nullptr, fopen(t.text("f", k_poem), "r"));
  CALL(fileno_unlocked(stream));
  CALL(getc_unlocked(stream));
  CALL(fgetc_unlocked(stream));
  char got[8];
  CALL(fread_unlocked(got, 1, 8, stream));
  t.bytes("got", got, 8);
  CALL(feof_unlocked(stream));
  CALL(fclose(stream));
}

PARITY(Stdio, ManyStreamsAreOpenTogether) {
  FILE* streams[40];
  for (int i = 0; i < 40; ++i)
    streams[i] = STDIO(nullptr, fopen(t.file("f" + std::to_string(i), 50 + i), "r"));
  for (int round = 0; round < 3; ++round) {
    for (FILE* stream : streams) CALL(fgetc(stream));
  }
  CALL(fflush(nullptr));
  for (FILE* stream : streams) CALL(lseek(fileno(stream), 0, SEEK_CUR));
  for (int i = 0; i < 40; ++i) CALL(fclose(streams[(i * 7) % 40]));
}

PARITY(Stdio, ClosedFdUnderAStream) {
  FILE* const stream = STDIO(nullptr, fopen(t.file("f", 100), "r"));
  CALL(close(fileno(stream)));
  CALL(fgetc(stream));
  CALL(ferror(stream));
  CALL(fclose(stream));
}

PARITY(Stdio, FileChangedUnderAStream) {
  FILE* const stream = STDIO(nullptr, fopen(t.file("f", 20000), "r"));
  CALL(fgetc(stream));
  CALL(truncate(t / "f", 5000));
  read_all(t, stream);
  CALL(fseek(stream, 0, SEEK_END));
  CALL(ftell(stream));
  CALL(fclose(stream));
}

PARITY(Stdio, StreamsOutliveAFork) {
  FILE* const stream = STDIO(nullptr, fopen(t.file("f", 20000), "r"));
  CALL(fgetc(stream));
  t.in_child([&] {
    CALL(fgetc(stream));
    CALL(ftell(stream));
    CALL(fseek(stream, 10000, SEEK_SET));
    CALL(fgetc(stream));
  });
  CALL(fgetc(stream));
  CALL(ftell(stream));
  read_all(t, stream);
  CALL(fclose(stream));
}
