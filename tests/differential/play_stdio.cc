// libc's streams, mixed with calls on the fds below them.
#include <fcntl.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/differential/player.h"

namespace cube::differ {
namespace {

constexpr const char* k_modes[] = {"r", "rb", "re", "rb", "r+", "a+", "w", "rc"};

// stdio may change errno on success.
std::string failure(bool failed, int error) { return failed ? " " + error_name(error) : ""; }

FILE* open_stream(Player& p, const Arguments& a, const char* mode) {
  FILE*& stream = p.stream(a[0]);
  if (stream != nullptr) return nullptr;
  const std::string path = p.path(a[1], a[2]);
  if (!p.may_open(path, mode)) return nullptr;
  if (*mode == 'w') p.content_changed(path.c_str());
  errno = 0;
  stream = fopen(path.c_str(), mode);
  const int error = errno;
  p.say("fopen({}, {}) = {}{}", p.show(path), mode, stream != nullptr ? fileno(stream) : -1,
        failure(stream == nullptr, error));
  return stream;
}

}  // namespace

DIFFER_PLAY(fopen) { open_stream(p, a, k_modes[a[3] % 8]); }

DIFFER_PLAY(setvbuf) {
  FILE* const stream = open_stream(p, a, "r");
  if (stream == nullptr) return;
  constexpr int kinds[] = {_IONBF, _IOFBF, _IOLBF, _IOFBF};
  constexpr std::size_t sizes[] = {0, 100, 4096, 70000};
  p.say("setvbuf({}, {}) = {}", kinds[a[3] % 4], sizes[a[3] % 4],
        setvbuf(stream, nullptr, kinds[a[3] % 4], sizes[a[3] % 4]));
}

DIFFER_PLAY(fdopen) {
  FILE*& stream = p.stream(a[0]);
  if (stream != nullptr) return;
  const int fd = p.fd(a[1]);
  const char* const mode = k_modes[a[2] % 8];
  errno = 0;
  stream = fdopen(fd, mode);
  const int error = errno;
  p.say("fdopen({}, {}) = {}{}", fd, mode, stream != nullptr ? fileno(stream) : -1,
        failure(stream == nullptr, error));
}

DIFFER_PLAY(freopen) {
  FILE*& stream = p.stream(a[0]);
  // A reopened unbuffered stream would stay unbuffered (SEMANTICS, Limits), and its read-ahead
  // would show that.
  if (stream == nullptr || __fbufsize(stream) == 1) return;
  const std::string path = p.path(a[1], a[2]);
  const char* const mode = k_modes[a[3] % 8];
  if (*mode == 'w') p.content_changed(path.c_str());
  errno = 0;
  stream = freopen(path.c_str(), mode, stream);
  const int error = errno;
  p.say("freopen({}, {}) = {}{}", p.show(path), mode, stream != nullptr ? fileno(stream) : -1,
        failure(stream == nullptr, error));
}

DIFFER_PLAY(fclose) {
  FILE*& stream = p.stream(a[0]);
  if (stream == nullptr) return;
  p.content_changed(fileno(stream));
  errno = 0;
  const int result = fclose(stream);
  p.say("fclose {} = {}{}", a[0], result, failure(result != 0, errno));
  stream = nullptr;
}

DIFFER_PLAY(fread) {
  FILE* const stream = p.stream(a[0]);
  if (stream == nullptr) return;
  const auto n = static_cast<std::size_t>(a[1]);
  // After a stream has seen the end, a read at least as large as the buffer bypasses the buffer; a
  // smaller read does not (SEMANTICS, Limits: streams at the end of a file that grows).
  if (feof(stream) != 0 && (n >= 4096 || __fbufsize(stream) == 1)) return;
  Buffer to(n);
  const std::size_t got = fread(to.data(), 1, n, stream);
  // libc may also write to the rest of the program's buffer, so only the bytes that were read
  // count.
  p.say("fread {} {} = {} {:016x} eof {} error {}", a[0], n, got, hash_of(to.data(), got),
        feof(stream), ferror(stream));
}

DIFFER_PLAY(fgets) {
  FILE* const stream = p.stream(a[0]);
  if (stream == nullptr) return;
  std::string line(static_cast<std::size_t>(a[1]) % 5000 + 2, '\0');
  const bool got = fgets(line.data(), static_cast<int>(line.size()), stream) != nullptr;
  const std::size_t n = strlen(line.c_str());
  p.say("fgets {} {} = {} {} {:016x}", a[0], line.size(), got, n, hash_of(line.data(), n));
}

DIFFER_PLAY(getline) {
  FILE* const stream = p.stream(a[0]);
  if (stream == nullptr) return;
  char* line = nullptr;
  std::size_t room = 0;
  const ssize_t n = getline(&line, &room, stream);
  p.say("getline {} = {} {:016x}", a[0], n, n > 0 ? hash_of(line, static_cast<std::size_t>(n)) : 0);
  free(line);
}

DIFFER_PLAY(ungetc) {
  FILE* const stream = p.stream(a[0]);
  if (stream == nullptr) return;
  // Puts back no more than was read: otherwise C does not define the position of the stream.
  const int was = fgetc(stream);
  const int c = was == EOF || a[1] % 3 == 0 ? was : static_cast<int>(a[1]);
  p.say("ungetc {} {} = {}", a[0], c, ungetc(c, stream));
}

DIFFER_PLAY(fseek) {
  FILE* const stream = p.stream(a[0]);
  if (stream == nullptr) return;
  const int whence = static_cast<int>(a[2] % 4);
  p.content_changed(fileno(stream));
  errno = 0;
  const int result = fseek(stream, a[1], whence);
  p.say("fseek {} {} {} = {}{}", a[0], a[1], whence, result, failure(result != 0, errno));
  // Before fflush(), the offset of the fd below the stream is unspecified (SEMANTICS, Limits).
  if (result == 0) fflush(stream);
}

DIFFER_PLAY(ftell) {
  FILE* const stream = p.stream(a[0]);
  if (stream == nullptr) return;
  errno = 0;
  const long at = ftell(stream);
  p.say("ftell {} = {}{}", a[0], at, failure(at < 0, errno));
}

DIFFER_PLAY(fflush) {
  FILE* const stream = a[1] == 7 ? nullptr : p.stream(a[0]);
  if (stream == nullptr && a[1] != 7) return;
  for (std::int64_t i = 0; i < 3; ++i) {
    if (p.stream(i) != nullptr) p.content_changed(fileno(p.stream(i)));
  }
  errno = 0;
  const int result = fflush(stream);
  p.say("fflush {} = {}{}", a[1] == 7 ? -1 : a[0], result, failure(result != 0, errno));
}

DIFFER_PLAY(fwrite) {
  FILE* const stream = p.stream(a[0]);
  if (stream == nullptr) return;
  const std::string bytes = pattern(99, static_cast<std::size_t>(a[1]));
  p.content_changed(fileno(stream));
  // C requires a seek between reading and writing, and a flush between writing and reading.
  if (fseek(stream, 0, SEEK_CUR) != 0) return;
  const std::size_t done = fwrite(bytes.data(), 1, bytes.size(), stream);
  fflush(stream);
  p.say("fwrite {} {} = {} error {}", a[0], bytes.size(), done, ferror(stream));
}

DIFFER_PLAY(fileno) {
  FILE* const stream = p.stream(a[0]);
  if (stream == nullptr) return;
  p.fd(a[1]) = fileno(stream);
  p.say("fileno {} = {}", a[0], p.fd(a[1]));
}

DIFFER_PLAY(stream_state) {
  FILE* const stream = p.stream(a[0]);
  if (stream == nullptr) return;
  if (a[1] == 0) clearerr(stream);
  if (a[1] == 1) {
    rewind(stream);
    fflush(stream);
  }
  p.say("stream {}: eof {} error {}", a[0], feof(stream), ferror(stream));
}

}  // namespace cube::differ
