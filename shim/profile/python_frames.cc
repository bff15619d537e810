#include "shim/profile/python_frames.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace cube::shim::profile::python {
namespace {

// Offsets in the interpreter's structures.
struct Layout {
  std::uint32_t version;       // 0x030b: 3.11
  std::uint16_t frame;         // in a thread state: the innermost frame, or a structure that has it
  bool is_behind_structure;    // _PyCFrame
  std::uint16_t in_structure;  // the innermost frame in that structure
  std::uint16_t code, previous, owner;              // in a frame; 0 in `owner`: absent
  std::uint16_t first_line, file, name, qualified;  // in a code object; 0 in `qualified`: absent
  std::uint16_t ascii, compact;                     // header sizes of strings
};
constexpr Layout k_layouts[] = {
    {0x0309, 24, false, 0, 32, 24, 0, 40, 104, 112, 0, 48, 72},
    {0x030a, 24, false, 0, 32, 24, 0, 40, 104, 112, 0, 48, 72},
    {0x030b, 56, true, 8, 32, 48, 0, 72, 112, 120, 128, 48, 72},
    {0x030c, 56, true, 0, 0, 8, 70, 68, 112, 120, 128, 40, 56},
};
// The owner of a frame that the interpreter inserts between two Python frames for C code.
constexpr std::uint8_t k_owned_by_c = 3;

using Address = std::uintptr_t;
constinit Layout g_layout{};
using IsInitialized = int();
using ThreadState = Address();
constinit IsInitialized* g_is_initialized = nullptr;
constinit ThreadState* g_thread_state = nullptr;
constinit Address g_code_type = 0;

template <typename T>
T read(Address at) {
  T value;
  std::memcpy(&value, reinterpret_cast<const void*>(at),
              sizeof value);  // NOLINT(performance-no-int-to-ptr)
  return value;
}

std::uint32_t version_of(const char* text) {
  unsigned major = 0, minor = 0;
  const char* const end = text + std::strlen(text);
  const auto [dot, error] = std::from_chars(text, end, major);
  if (error != std::errc{} || dot == end || *dot != '.') return 0;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc{} || major > 255 || minor > 255)
    return 0;
  return major << 8 | minor;
}

// Python 3.13 publishes these offsets (_Py_DebugOffsets). The numbers count fields of 8 bytes.
bool layout_of_itself(Layout& layout) {
  const auto at = reinterpret_cast<Address>(dlsym(RTLD_DEFAULT, "_PyRuntime"));
  if (at == 0 || std::memcmp(reinterpret_cast<const void*>(at), "xdebugpy", 8) != 0)
    return false;  // NOLINT(performance-no-int-to-ptr)
  const auto field = [at](unsigned number) { return read<std::uint64_t>(at + 8 * number); };
  if (field(1) >> 16 != 0x030d || field(2) != 0) return false;
  std::uint64_t offsets[] = {field(23), field(29), field(30), field(33),
                             field(35), field(36), field(37), field(39)};
  if (std::any_of(std::begin(offsets), std::end(offsets),
                  [](auto offset) { return offset > 4096; }))
    return false;
  const auto small = [&](unsigned i) { return static_cast<std::uint16_t>(offsets[i]); };
  layout = {0x030d,   small(0), false,    0,        small(2), small(1), small(3),
            small(7), small(4), small(5), small(6), 40,       56};
  return true;
}

bool find_layout(const char* version_text) {
  const std::uint32_t version = version_of(version_text);
  if (version == 0x030d) return layout_of_itself(g_layout);
  const auto* const known = std::find_if(std::begin(k_layouts), std::end(k_layouts),
                                         [&](const auto& l) { return l.version == version; });
  if (known == std::end(k_layouts)) return false;
  g_layout = *known;
  return true;
}

// Converts a Python string to UTF-8. Replaces control characters, and characters beyond U+FFFF, by
// '?'.
std::string_view text_of(Address text, char (&room)[512]) {
  const auto length = read<std::int64_t>(text + 16);
  const auto state = read<std::uint32_t>(text + 32);
  const unsigned width = state >> 2 & 7;
  const bool is_compact = (state >> 5 & 1) != 0, is_ascii = (state >> 6 & 1) != 0;
  if (!is_compact || length < 0 || (width != 1 && width != 2 && width != 4)) return "?";
  const Address data = text + (is_ascii ? g_layout.ascii : g_layout.compact);
  std::size_t n = 0;
  for (std::int64_t i = 0; i < length && n + 4 < sizeof room; ++i) {
    const Address at = data + static_cast<Address>(i) * width;
    const std::uint32_t c = width == 1   ? read<std::uint8_t>(at)
                            : width == 2 ? read<std::uint16_t>(at)
                                         : read<std::uint32_t>(at);
    if (c < 0x80) {
      room[n++] = static_cast<char>(c < 0x20 ? '?' : c);
    } else if (c < 0x800) {
      room[n++] = static_cast<char>(0xc0 | c >> 6);
      room[n++] = static_cast<char>(0x80 | (c & 63));
    } else if (c < 0x10000) {
      room[n++] = static_cast<char>(0xe0 | c >> 12);
      room[n++] = static_cast<char>(0x80 | (c >> 6 & 63));
      room[n++] = static_cast<char>(0x80 | (c & 63));
    } else {
      room[n++] = '?';
    }
  }
  return {room, n};
}

// Returns the row of a code object plus 1. Returns 0 if the table is full. The key includes the
// name and the line, because another code object may reuse the memory of a freed code object.
std::uint32_t row_of(Tables& tables, Address code) {
  const auto name =
      read<Address>(code + (g_layout.qualified != 0 ? g_layout.qualified : g_layout.name));
  const auto file = read<Address>(code + g_layout.file);
  const auto line = read<std::uint32_t>(code + g_layout.first_line);
  std::uint64_t key = code * 0x9e3779b97f4a7c15ULL ^ (name << 1) ^ (file << 7) ^ line;
  key ^= key >> 31;
  bool is_new = false;
  CodeRow* const row = find_row(tables.codes, key != 0 ? key : 1, is_new);
  if (row == nullptr) {
    add(tables.dropped[k_no_code], 1);
    return 0;
  }
  if (is_new) {
    char room[512];
    row->name = keep_text(tables, text_of(name, room));
    row->file = keep_text(tables, text_of(file, room));
    row->line = line;
    row->ready.store(1, std::memory_order_release);
  }
  return static_cast<std::uint32_t>(row - tables.codes.data()) + 1;
}

}  // namespace

void start() {
  const auto get_version =
      reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "Py_GetVersion"));
  if (get_version == nullptr) return;
  g_code_type = reinterpret_cast<Address>(dlsym(RTLD_DEFAULT, "PyCode_Type"));
  g_is_initialized = reinterpret_cast<IsInitialized*>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  if (g_code_type == 0 || g_is_initialized == nullptr || !find_layout(get_version())) return;
  g_thread_state =
      reinterpret_cast<ThreadState*>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
}

void walk(Tables& tables, Stack& stack) {
  if (g_thread_state == nullptr || g_is_initialized() == 0) return;
  const Address state = g_thread_state();
  if (state == 0) return;
  Address frame = read<Address>(state + g_layout.frame);
  if (g_layout.is_behind_structure && frame != 0)
    frame = read<Address>(frame + g_layout.in_structure);
  constexpr unsigned k_most_steps = 4 * k_most_python;
  for (unsigned i = 0;
       frame % 8 == 0 && frame != 0 && i < k_most_steps && stack.pythons < k_most_python; ++i) {
    const auto code = read<Address>(frame + g_layout.code);
    const bool is_own =
        g_layout.owner != 0 && read<std::uint8_t>(frame + g_layout.owner) == k_owned_by_c;
    if (!is_own) {
      if (code == 0 || code % 8 != 0 || read<Address>(code + 8) != g_code_type) return;
      const std::uint32_t row = row_of(tables, code);
      if (row == 0) return;
      stack.python[stack.pythons++] = row - 1;
    }
    frame = read<Address>(frame + g_layout.previous);
  }
}

}  // namespace cube::shim::profile::python
