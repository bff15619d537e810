// Wide characters. A cookie stream has no room for wide characters. If the program read a wide
// character, libc would follow a bad pointer. So the first wide call on a cookie stream
// materializes its file, and gives the stream the same room as fdopen. libc then makes the stream
// an ordinary wide stream, which reads the kernel file through _fileno.
#include <malloc.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "shim/fd/materialize.h"
#include "shim/libc/exports.h"
#include "shim/libc/served_stream.h"
#include "shim/process/c_result.h"
#include "shim/process/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

// The wide parts that this library has made, so that fclose can distinguish them from libc's. Parts
// beyond this number are never freed.
constinit std::array<std::atomic<void*>, 64> g_parts{};
constinit std::atomic<int> g_parts_given{0};

// False if libc has marked the stream as one without room for wide characters.
bool has_room(const FILE* stream) {
  return reinterpret_cast<std::intptr_t>(stream->_wide_data) != -1;
}

// True if nothing was read yet, so that the stream can still become a wide stream.
bool is_unread(const FILE* stream) { return stream->_IO_read_end == stream->_IO_read_base; }

// Copies the wide part of a new stream over `fd`. The wide part follows the FILE in the same
// allocation.
void* make_wide_part(int fd) {
  // freopen may have opened the file for writing only.
  const bool reads = (cube::base::sys::fcntl(fd, F_GETFL) & O_ACCMODE) != O_WRONLY;
  FILE* const model = real::fdopen(fd, reads ? "r" : "w");
  if (model == nullptr) return nullptr;
  const auto* const part = reinterpret_cast<const char*>(model->_wide_data);
  const std::size_t size =
      malloc_usable_size(model) - static_cast<std::size_t>(part - reinterpret_cast<char*>(model));
  void* const copy = malloc(size);
  if (copy != nullptr) std::memcpy(copy, part, size);
  model->_fileno = -1;
  real::fclose(model);
  return copy;
}

FILE* make_room(FILE* stream) {
  if (stream == nullptr || !shim::is_served_stream(stream)) return stream;
  const shim::KeepErrno keep;
  flockfile(stream);
  if (!has_room(stream) && shim::materialize(stream->_fileno, "fwide") == 0) {
    if (void* const part = make_wide_part(stream->_fileno); part != nullptr) {
      stream->_wide_data = static_cast<_IO_wide_data*>(part);
      if (is_unread(stream)) stream->_mode = 0;
      g_parts_given.fetch_add(1, std::memory_order_relaxed);
      for (auto& slot : g_parts) {
        void* empty = nullptr;
        if (slot.compare_exchange_strong(empty, part)) break;
      }
    }
  }
  funlockfile(stream);
  return stream;
}

// True for a served stream without room for wide characters, because memory was exhausted. The
// stream stays a byte stream, and the callers below fail.
bool refuses(FILE* stream) { return shim::is_served_stream(stream) && !has_room(stream); }

}  // namespace

void* shim::wide_part_of(const FILE* stream) {
  if (g_parts_given.load(std::memory_order_relaxed) == 0) return nullptr;
  for (const auto& slot : g_parts) {
    void* const part = slot.load(std::memory_order_relaxed);
    if (part != nullptr && part == stream->_wide_data) return part;
  }
  return nullptr;
}

void shim::free_wide_part(void* part) {
  if (part == nullptr) return;
  for (auto& slot : g_parts) {
    void* expected = part;
    if (slot.compare_exchange_strong(expected, nullptr)) break;
  }
  const KeepErrno keep;
  free(part);
}

int export_fwide(FILE* stream, int mode) {
  if (stream == nullptr || !shim::is_served_stream(stream)) return real::fwide(stream, mode);
  if (mode == 0) return has_room(stream) || !is_unread(stream) ? real::fwide(stream, 0) : 0;
  if (mode > 0) make_room(stream);
  return refuses(stream) ? -1 : real::fwide(stream, mode);
}

#define CUBE_WIDE(type, failed, name, parameters, ...) \
  type export_##name parameters {                      \
    if (refuses(make_room(stream))) return failed;     \
    return real::name(__VA_ARGS__);                    \
  }
CUBE_WIDE(wint_t, WEOF, fgetwc, (FILE * stream), stream)
CUBE_WIDE(wint_t, WEOF, getwc, (FILE * stream), stream)
CUBE_WIDE(wint_t, WEOF, fgetwc_unlocked, (FILE * stream), stream)
CUBE_WIDE(wint_t, WEOF, getwc_unlocked, (FILE * stream), stream)
CUBE_WIDE(wint_t, WEOF, ungetwc, (wint_t c, FILE* stream), c, stream)
CUBE_WIDE(wint_t, WEOF, fputwc, (wchar_t c, FILE* stream), c, stream)
CUBE_WIDE(wint_t, WEOF, putwc, (wchar_t c, FILE* stream), c, stream)
CUBE_WIDE(int, -1, fputws, (const wchar_t* text, FILE* stream), text, stream)
CUBE_WIDE(wchar_t*, nullptr, fgetws, (wchar_t * to, int n, FILE* stream), to, n, stream)
CUBE_WIDE(wchar_t*, nullptr, fgetws_unlocked, (wchar_t * to, int n, FILE* stream), to, n, stream)
CUBE_WIDE(wchar_t*, nullptr, __fgetws_chk, (wchar_t * to, size_t room, int n, FILE* stream), to,
          room, n, stream)
CUBE_WIDE(wchar_t*, nullptr, __fgetws_unlocked_chk,
          (wchar_t * to, size_t room, int n, FILE* stream), to, room, n, stream)

#define CUBE_WIDE_SCAN(name, vname)                                                               \
  CUBE_WIDE(int, -1, vname, (FILE * stream, const wchar_t* format, va_list list), stream, format, \
            list)                                                                                 \
  int export_##name(FILE* stream, const wchar_t* format, ...) {                                   \
    va_list list;                                                                                 \
    va_start(list, format);                                                                       \
    const int result = export_##vname(stream, format, list);                                      \
    va_end(list);                                                                                 \
    return result;                                                                                \
  }
CUBE_WIDE_SCAN(fwscanf, vfwscanf)
CUBE_WIDE_SCAN(__isoc99_fwscanf, __isoc99_vfwscanf)
CUBE_WIDE_SCAN(__isoc23_fwscanf, __isoc23_vfwscanf)
