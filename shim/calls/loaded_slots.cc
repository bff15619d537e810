#include "shim/calls/loaded_slots.h"

#include <gnu/libc-version.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "cache/base/memory/kernel_page.h"
#include "cache/base/process/library_tables.h"
#include "cache/base/sys.h"
#include "shim/process/own_library.h"

namespace cube::shim::loaded_slots {
namespace {

namespace sys = base::sys;
using base::AddressRange, base::LibraryTables;

template <typename T>
const T* at(std::uintptr_t address) {
  return reinterpret_cast<const T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool is_ours(std::uintptr_t address) { return is_in_library(at<void>(address)); }

// The memory that the loader makes read-only when it has bound the library. The loader rounds both
// ends down to pages.
AddressRange relro_of(const ::dl_phdr_info& info) {
  const std::uintptr_t page = base::kernel_page();
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& segment = info.dlpi_phdr[i];
    const std::uintptr_t begin = info.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_GNU_RELRO)
      return {begin / page * page, (begin + segment.p_memsz) / page * page};
  }
  return {};
}

bool is_in_writable_segment(const ::dl_phdr_info& info, std::uintptr_t offset) {
  return std::any_of(info.dlpi_phdr, info.dlpi_phdr + info.dlpi_phnum, [&](const auto& segment) {
    return segment.p_type == PT_LOAD && (segment.p_flags & PF_W) != 0 &&
           offset - segment.p_vaddr < segment.p_memsz;
  });
}

enum class Kind : std::uint8_t { jump, global, pointer };
struct Slot {
  std::uintptr_t* at;
  const ElfW(Sym) * ours;
  Kind kind;
};

struct Library {
  AddressRange range, relro;
  LibraryTables tables;
  const char* path = nullptr;
  bool is_libc = false;
  bool is_new = true;         // not looked at yet
  bool was_writable = false;  // at the last look, relro was not read-only
  std::vector<Slot> slots;
};

constinit std::vector<Library>* g_libraries = nullptr;
constinit unsigned long long g_unloaded = 0;
// How many libraries had ever been loaded and unloaded at the last complete look.
constinit std::atomic<unsigned long long> g_seen_loaded{0}, g_seen_unloaded{0};
constinit LibraryTables g_ours;

std::uintptr_t address_of(const Slot& slot) { return g_ours.base + slot.ours->st_value; }

// Before glibc 2.34, libc was in several libraries.
bool is_part_of_libc(const ::dl_phdr_info& info, const AddressRange& range) {
  const char* const slash = std::strrchr(info.dlpi_name, '/');
  const std::string_view name = slash != nullptr ? slash + 1 : info.dlpi_name;
  return range.has(reinterpret_cast<std::uintptr_t>(&gnu_get_libc_version)) ||
         name.starts_with("ld-linux") || name.starts_with("libpthread.so") ||
         name.starts_with("libdl.so") || name.starts_with("librt.so");
}

void take_slots(std::uintptr_t begin, std::size_t bytes, const ::dl_phdr_info& info,
                bool takes_pointers, Library& library) {
  const LibraryTables& tables = library.tables;
  const auto* const rows = at<ElfW(Rela)>(begin);
  for (const auto* row = rows; row < rows + bytes / sizeof *rows; ++row) {
    const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(row->r_info));
    if (type != LibraryTables::k_jump && type != LibraryTables::k_global &&
        !(type == LibraryTables::k_pointer && takes_pointers))
      continue;
    const auto& symbol = tables.symbol(ELF64_R_SYM(row->r_info));
    if (symbol.st_shndx != SHN_UNDEF || row->r_addend != 0 ||
        row->r_offset % sizeof(std::uintptr_t) != 0)
      continue;
    const ElfW(Sym)* const ours = g_ours.find(tables.name(symbol));
    if (ours == nullptr || !is_in_writable_segment(info, row->r_offset)) continue;
    library.slots.push_back(
        {const_cast<std::uintptr_t*>(at<std::uintptr_t>(info.dlpi_addr + row->r_offset)), ours,
         type == LibraryTables::k_jump     ? Kind::jump
         : type == LibraryTables::k_global ? Kind::global
                                           : Kind::pointer});
  }
}

struct Look {
  const Question& question;
  Result& result;
};

// dl_iterate_phdr holds the loader's lock while it calls note_new() and look_at_all(), so these
// must not call code of the program.
int note_new(::dl_phdr_info* info, std::size_t, void* data) {
  const Question& question = static_cast<const Look*>(data)->question;
  // Another library may have been loaded at the addresses of an unloaded one.
  if (info->dlpi_subs != g_unloaded) {
    g_libraries->clear();
    g_unloaded = info->dlpi_subs;
  }
  const AddressRange range = base::range_of(*info);
  if (range.end == 0 ||
      std::any_of(g_libraries->begin(), g_libraries->end(),
                  [&](const Library& known) { return known.range.begin == range.begin; }))
    return 0;
  Library made{};
  made.range = range;
  made.relro = relro_of(*info);
  made.tables = LibraryTables(*info, range);
  made.path = info->dlpi_name;
  made.is_libc = is_part_of_libc(*info, range);
  // Three libraries may call libc directly: libc itself, this library, and the exempt one.
  const bool is_own = made.is_libc || is_ours(range.begin) || range.has(question.exempt);
  const LibraryTables& tables = made.tables;
  if (!is_own && tables.symbols != 0 && tables.names != 0) {
    const bool takes_pointers = question.is_own_scope_possible;
    if (tables.rela != 0) take_slots(tables.rela, tables.rela_bytes, *info, takes_pointers, made);
    if (tables.jumps != 0) take_slots(tables.jumps, tables.jumps_bytes, *info, false, made);
  }
  g_libraries->push_back(std::move(made));
  return 0;
}

// Tests, without risking a fault, whether the word can be written: the kernel ORs 0 into it.
bool is_writable(const std::uintptr_t* word, bool if_unknown) {
  const std::uint32_t nobody = 0;
  const long result = sys::raw(SYS_futex, sys::arg(&nobody), FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0,
                               0, sys::arg(word), FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0));
  return result == -EFAULT ? false : sys::failed(result) ? if_unknown : true;
}

Found found(std::uintptr_t function, const char* name, std::string_view library) {
  Found made{function, name, {}};
  if (library.empty()) library = "the program";
  const std::string_view file = library.substr(library.rfind('/') + 1);
  file.copy(made.library, std::min(file.size(), sizeof made.library - 1));
  return made;
}

// Redirects slots of one library to our functions.
class Redirection {
 public:
  Redirection(Library& library, Result& result)
      : library_(library), result_(result), was_writable_(library.was_writable) {}
  ~Redirection() {
    if (is_opened_) protect(PROT_READ);
  }
  // True if a slot must be left to the next look.
  bool is_too_early() const { return library_.was_writable && !was_writable_; }
  Redirection(const Redirection&) = delete;
  Redirection& operator=(const Redirection&) = delete;

  void put(const Slot& slot, std::uintptr_t function) {
    const bool is_relro = library_.relro.has(reinterpret_cast<std::uintptr_t>(slot.at));
    bool can_write = is_relro && is_opened_;
    if (!can_write && is_writable(slot.at, /*if_unknown=*/!is_relro)) {
      // The loader has not finished binding the library, and will still make the slot read-only. If
      // it has not done so by the next look, other code has made the slot writable.
      if (is_relro && !was_writable_) {
        library_.was_writable = result_.is_incomplete = true;
        return;
      }
      can_write = true;
    } else if (!can_write && is_relro) {
      can_write = is_opened_ = protect(PROT_READ | PROT_WRITE);
    }
    if (can_write) {
      // Other threads may call through the slot, and the loader may be binding it.
      __atomic_compare_exchange_n(slot.at, &function, address_of(slot), false, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED);
    } else {
      result_.refused = found(function, g_ours.name(*slot.ours), library_.path);
    }
  }

 private:
  bool protect(int protection) const {
    return !sys::failed(sys::raw(SYS_mprotect, static_cast<long>(library_.relro.begin),
                                 static_cast<long>(library_.relro.end - library_.relro.begin),
                                 protection));
  }

  Library& library_;
  Result& result_;
  const bool was_writable_;
  bool is_opened_ = false;
};

bool is_in_libc(std::uintptr_t function) {
  return std::any_of(g_libraries->begin(), g_libraries->end(), [&](const Library& library) {
    return library.is_libc && library.range.has(function);
  });
}

// True if no loaded library except libc and ours defines the function. With RTLD_DEEPBIND, the
// loader prefers the libraries that a library needs.
bool can_only_be_libcs(const Slot& slot) {
  const char* const name = g_ours.name(*slot.ours);
  bool has_libc = false;
  for (const Library& library : *g_libraries) {
    if (is_ours(library.range.begin) || library.tables.find(name) == nullptr) continue;
    if (!library.is_libc) return false;
    has_libc = true;
  }
  return has_libc;
}

void note_other(std::uintptr_t function, const Slot& slot, const Library& library, Result& result) {
  const auto is_known = [&](const Found& other) { return other.function == function; };
  if (std::none_of(result.others.begin(), result.others.end(), is_known))
    result.others.push_back(found(function, g_ours.name(*slot.ours), library.path));
}

bool is_in_no_library(std::uintptr_t function) {
  return std::none_of(g_libraries->begin(), g_libraries->end(),
                      [&](const Library& library) { return library.range.has(function); });
}

// Returns false if the loader has not relocated the slot yet.
bool look_at(const Slot& slot, const Library& library, const Look& look, Redirection& redirection) {
  const std::uintptr_t function = __atomic_load_n(slot.at, __ATOMIC_RELAXED);
  if (function == 0) return slot.kind == Kind::pointer;
  if (is_ours(function)) return true;
  if (library.range.has(function)) {
    if (look.question.is_own_scope_possible && library.is_new && slot.kind == Kind::jump &&
        can_only_be_libcs(slot))
      redirection.put(slot, function);
  } else if (is_in_libc(function)) {
    redirection.put(slot, function);
  } else if (function < library.range.end - library.range.begin && is_in_no_library(function)) {
    // Until the loader has relocated a slot, it holds an offset in the library.
    look.result.is_incomplete = true;
    return false;
  } else if (slot.kind != Kind::pointer && look.question.is_wanted(g_ours.name(*slot.ours))) {
    note_other(function, slot, library, look.result);
  }
  return true;
}

void look_at(Library& library, const Look& look) {
  bool is_bound = true;
  Redirection redirection(library, look.result);
  for (const Slot& slot : library.slots) is_bound &= look_at(slot, library, look, redirection);
  if (!is_bound || redirection.is_too_early()) return;
  // From now on, the pointers are ignored, because the program may change them.
  library.is_new = false;
  std::erase_if(library.slots, [](const Slot& slot) { return slot.kind == Kind::pointer; });
}

int look_at_all(::dl_phdr_info* info, std::size_t, void* data) {
  const Look& look = *static_cast<const Look*>(data);
  if (info->dlpi_subs != g_unloaded) {
    look.result.is_incomplete = true;
    return 1;
  }
  for (Library& library : *g_libraries) look_at(library, look);
  if (!look.result.is_incomplete) {
    g_seen_loaded.store(info->dlpi_adds, std::memory_order_relaxed);
    g_seen_unloaded.store(info->dlpi_subs, std::memory_order_relaxed);
  }
  return 1;
}

int find_ours(::dl_phdr_info* info, std::size_t, void*) {
  const AddressRange range = base::range_of(*info);
  if (range.end == 0 || !is_ours(range.begin)) return 0;
  g_ours = LibraryTables(*info, range);
  return 1;
}

}  // namespace

bool have_changed() {
  bool result = false;
  dl_iterate_phdr(
      [](::dl_phdr_info* info, std::size_t, void* data) {
        *static_cast<bool*>(data) =
            info->dlpi_adds != g_seen_loaded.load(std::memory_order_relaxed) ||
            info->dlpi_subs != g_seen_unloaded.load(std::memory_order_relaxed);
        return 1;
      },
      &result);
  return result;
}

Result look(const Question& question) {
  Result result;
  Look look{question, result};
  if (g_libraries == nullptr) g_libraries = new std::vector<Library>;
  if (g_ours.base == 0) dl_iterate_phdr(find_ours, nullptr);
  dl_iterate_phdr(note_new, &look);
  if (is_in_libc(question.first_read)) return result;
  dl_iterate_phdr(look_at_all, &look);
  if (!is_ours(question.first_read))
    result.others.push_back(
        found(question.first_read, "read", "a library before it in LD_PRELOAD"));
  return result;
}

}  // namespace cube::shim::loaded_slots
