#include "shim/calls/loaded_calls.h"

#include <dlfcn.h>
#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <new>
#include <string_view>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/process/high_fd.h"
#include "cache/base/process/signal_frame.h"
#include "shim/calls/past_libc.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/fd/placeholder.h"
#include "shim/process/c_result.h"
#include "shim/process/process.h"
#include "shim/profile/loader_lock.h"
#include "shim/profile/native_stack.h"

namespace cube::shim::loaded_calls {
namespace {

namespace sys = base::sys;

// A row for each call that a library may make on an fd that other code has opened. `way` says how
// to test whether such a call reaches this library.
enum class Way : std::uint8_t { read, pread, seek, stat, map, none };
struct Call {
  std::string_view name;
  Way way;
};
constexpr Call k_calls[] = {
    {"read", Way::read},     {"__read", Way::read},     {"pread", Way::pread},
    {"pread64", Way::pread}, {"lseek", Way::seek},      {"lseek64", Way::seek},
    {"fstat", Way::stat},    {"fstat64", Way::stat},    {"mmap", Way::map},
    {"mmap64", Way::map},    {"__read_chk", Way::none}, {"__pread_chk", Way::none},
    {"readv", Way::none},    {"preadv", Way::none},     {"preadv64", Way::none},
};
constexpr std::string_view k_beginnings = "r_plfm";

const Call* call_of(const char* name) {
  if (k_beginnings.find(*name) == std::string_view::npos) return nullptr;
  const auto* const found = std::find_if(std::begin(k_calls), std::end(k_calls),
                                         [&](const Call& c) { return c.name == name; });
  return found != std::end(k_calls) ? found : nullptr;
}

struct Range {
  std::uintptr_t begin = 0, end = 0;
  bool has(std::uintptr_t address) const { return address - begin < end - begin; }
};

Range range_of(const ::dl_phdr_info& info) {
  Range all{UINTPTR_MAX, 0};
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& segment = info.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    all.begin = std::min<std::uintptr_t>(all.begin, info.dlpi_addr + segment.p_vaddr);
    all.end = std::max<std::uintptr_t>(all.end, info.dlpi_addr + segment.p_vaddr + segment.p_memsz);
  }
  return all.end != 0 ? all : Range{};
}

struct Slot {
  const std::uintptr_t* at;
  const Call* call;
};

// The slots of one loaded library.
struct Library {
  Range range;
  std::vector<Slot> slots;
};

struct Target {
  std::uintptr_t function;
  const Call* call;
  char library[64];
};

// The state of one check.
struct Look {
  Range libc, ours;
  std::uintptr_t unwinder = 0;  // a function in the profiler's libunwind
  unsigned long long unloaded = 0;
  std::vector<Target> targets;   // functions of other libraries, which must be tested
  Target past_us{};              // a call that leads directly to libc
  bool is_unbound_seen = false;  // another thread's dlopen has not bound its library yet
};

// The function that a program's call of read() reaches. The order of the libraries before libc
// never changes.
constinit std::uintptr_t g_first_read = 0;

// Guarded by g_is_looking.
constinit std::vector<Library>* g_libraries = nullptr;
constinit unsigned long long g_unloaded = 0;
constinit std::uintptr_t g_good[64] = {};  // functions of other libraries that call this
                                           // library
constinit std::atomic<bool> g_is_looking{false};
constinit std::atomic<std::uint64_t> g_next_ns{0};

void take_slots(const ElfW(Rela) * begin, std::size_t bytes, const ::dl_phdr_info& info,
                const ElfW(Sym) * symbols, const char* names, Library& library) {
#if defined(__x86_64__)
  constexpr auto k_is_slot = [](std::uint32_t type) {
    return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
  };
#elif defined(__aarch64__)
  constexpr auto k_is_slot = [](std::uint32_t type) {
    return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
  };
#endif
  for (const auto* rela = begin; rela < begin + bytes / sizeof *begin; ++rela) {
    if (!k_is_slot(static_cast<std::uint32_t>(ELF64_R_TYPE(rela->r_info)))) continue;
    const auto& symbol = symbols[ELF64_R_SYM(rela->r_info)];
    if (symbol.st_shndx != SHN_UNDEF) continue;
    if (const Call* const call = call_of(names + symbol.st_name); call != nullptr)
      library.slots.push_back(
          {reinterpret_cast<const std::uintptr_t*>(info.dlpi_addr + rela->r_offset), call});
  }
}

void find_slots(const ::dl_phdr_info& info, Library& library) {
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC)
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
  }
  if (dynamic == nullptr) return;
  // glibc has already converted these offsets into addresses, except in the kernel's own library
  // (vdso).
  const auto pointer = [&](std::uintptr_t value) {
    return library.range.has(value) ? value : info.dlpi_addr + value;
  };
  std::uintptr_t symbols = 0, names = 0, rela = 0, jumps = 0, rela_bytes = 0, jumps_bytes = 0;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    switch (dynamic->d_tag) {
      case DT_SYMTAB: symbols = pointer(dynamic->d_un.d_ptr); break;
      case DT_STRTAB: names = pointer(dynamic->d_un.d_ptr); break;
      case DT_RELA: rela = pointer(dynamic->d_un.d_ptr); break;
      case DT_RELASZ: rela_bytes = dynamic->d_un.d_val; break;
      case DT_JMPREL: jumps = pointer(dynamic->d_un.d_ptr); break;
      case DT_PLTRELSZ: jumps_bytes = dynamic->d_un.d_val; break;
      default: break;
    }
  }
  if (symbols == 0 || names == 0) return;
  for (const auto& [at, bytes] : {std::pair{rela, rela_bytes}, std::pair{jumps, jumps_bytes}}) {
    if (at != 0)
      take_slots(reinterpret_cast<const ElfW(Rela)*>(at), bytes, info,
                 reinterpret_cast<const ElfW(Sym)*>(symbols), reinterpret_cast<const char*>(names),
                 library);
  }
}

Target target(std::uintptr_t function, const Call* call, const char* library) {
  Target made{function, call, {}};
  const std::string_view path = library != nullptr && *library != '\0' ? library : "the program";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  name.copy(made.library, std::min(name.size(), sizeof made.library - 1));
  return made;
}

void look_at(const Library& library, const char* name, Look& look) {
  for (const Slot& slot : library.slots) {
    const std::uintptr_t function = __atomic_load_n(slot.at, __ATOMIC_RELAXED);
    if (function == 0 || look.ours.has(function) || library.range.has(function)) continue;
    // Until the loader has relocated a slot, it holds an offset in the library.
    if (function < library.range.end - library.range.begin &&
        std::none_of(g_libraries->begin(), g_libraries->end(),
                     [&](const Library& l) { return l.range.has(function); })) {
      look.is_unbound_seen = true;
    } else if (look.libc.has(function)) {
      look.past_us = target(function, slot.call, name);
    } else if (std::find(std::begin(g_good), std::end(g_good), function) == std::end(g_good) &&
               std::none_of(look.targets.begin(), look.targets.end(),
                            [&](const Target& t) { return t.function == function; })) {
      look.targets.push_back(target(function, slot.call, name));
    }
  }
}

// The loader's lock is held here, so this function must not call code of the program.
int visit(::dl_phdr_info* info, std::size_t, void* data) {
  auto& look = *static_cast<Look*>(data);
  // Another library may have been loaded at the addresses of an unloaded one.
  if (info->dlpi_subs != g_unloaded) {
    g_libraries->clear();
    g_unloaded = info->dlpi_subs;
  }
  const Range range = range_of(*info);
  const auto of_range = [&](const Library& l) { return l.range.begin == range.begin; };
  auto known = std::find_if(g_libraries->begin(), g_libraries->end(), of_range);
  if (known == g_libraries->end()) {
    Library made{range, {}};
    // Three libraries may call libc directly, so their calls are not checked: libc itself, this
    // library, and the profiler's libunwind, whose calls this library has redirected to libc.
    const bool is_own = range.begin == look.libc.begin || range.begin == look.ours.begin ||
                        range.has(look.unwinder);
    if (!is_own && range.end != 0) find_slots(*info, made);
    g_libraries->push_back(std::move(made));
    known = g_libraries->end() - 1;
  }
  look_at(*known, info->dlpi_name, look);
  return 0;
}

Range library_with(const void* address) {
  struct Search {
    std::uintptr_t address;
    Range found;
  } search{reinterpret_cast<std::uintptr_t>(address), {}};
  dl_iterate_phdr(
      [](::dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        const Range range = range_of(*info);
        if (!range.has(wanted.address)) return 0;
        wanted.found = range;
        return 1;
      },
      &search);
  return search.found;
}

// The record of the test file. Its path is a directory, so no file of the origin can be mistaken
// for it.
struct TrialRecord {
  cache::Record head{};
  char path[8] = "/";
  std::byte data[8] = {};
};
constinit TrialRecord g_trial;

// A served file of one byte. It is marked as changed, so that a call that reaches this library
// materializes it.
class TrialFile {
 public:
  TrialFile() {
    OpenFileRef file = open_files::make();
    fd_ = file ? placeholder::acquire(base::k_high_fd) : -1;
    if (fd_ < 0 || !g_fds.is_within(fd_)) return;
    g_trial.head.path_length = 1;
    g_trial.head.data_size = 1;
    g_trial.head.data_offset = offsetof(TrialRecord, data);
    g_trial.head.stale.store(cache::Record::k_changed, std::memory_order_relaxed);
    file->kind = OpenFile::Kind::served;
    file->record = &g_trial.head;
    file->data = g_trial.data;
    file->size = 1;
    file->flags = O_RDONLY;
    g_fds.set(fd_, RowKind::served, std::move(file), /*close_on_exec=*/true);
  }
  ~TrialFile() {
    if (fd_ < 0) return;
    g_fds.take(fd_);
    sys::close(fd_);
    placeholder::note_freed(fd_);
  }
  TrialFile(const TrialFile&) = delete;
  TrialFile& operator=(const TrialFile&) = delete;
  explicit operator bool() const { return fd_ >= 0 && g_fds.kind(fd_) == RowKind::served; }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

bool comes_to_us(const Target& target) {
  const TrialFile file;
  if (!file) return true;
  const int fd = file.fd();
  char byte = 0;
  struct ::stat st {};
  void* mapped = MAP_FAILED;
  switch (target.call->way) {
    case Way::read:
      reinterpret_cast<ssize_t (*)(int, void*, std::size_t)>(target.function)(fd, &byte, 1);
      break;
    case Way::pread:
      reinterpret_cast<ssize_t (*)(int, void*, std::size_t, off_t)>(target.function)(fd, &byte, 1,
                                                                                     0);
      break;
    case Way::seek:
      if (reinterpret_cast<off_t (*)(int, off_t, int)>(target.function)(fd, 0, SEEK_CUR) == 0)
        return true;
      break;
    case Way::stat: reinterpret_cast<int (*)(int, struct ::stat*)>(target.function)(fd, &st); break;
    case Way::map:
      mapped = reinterpret_cast<void* (*)(void*, std::size_t, int, int, int, off_t)>(
          target.function)(nullptr, 1, PROT_READ, MAP_PRIVATE, fd, 0);
      if (mapped != MAP_FAILED) sys::munmap(mapped, 1);
      break;
    case Way::none: return true;
  }
  return g_fds.kind(fd) != RowKind::served;
}

void remember(std::uintptr_t function) {
  auto* const place = std::find(std::begin(g_good), std::end(g_good), std::uintptr_t{0});
  if (place != std::end(g_good)) *place = function;
}

void tell(const Target& target) {
  past_libc::begin();
  past_libc::end(base::LogLevel::warn, target.library, target.call->name);
}

// Returns true if a call may bypass this library. Reports such a call.
bool look_at_all() {
  static const Range k_libc = library_with(reinterpret_cast<const void*>(&gnu_get_libc_version));
  static const Range k_ours = library_with(reinterpret_cast<const void*>(&visit));
  Look look{k_libc, k_ours, reinterpret_cast<std::uintptr_t>(profile::native::library()),
            0,      {},     {}};
  // If read() leads to libc, this library was loaded by dlopen, and no other library's calls are
  // bound to this library.
  if (k_libc.end == 0 || g_first_read == 0 || k_libc.has(g_first_read)) return false;
  if (g_libraries == nullptr) g_libraries = new std::vector<Library>;
  dl_iterate_phdr(visit, &look);
  // Slots that are not bound yet will also lead to the first definition in the lookup order.
  if (!look.ours.has(g_first_read))
    look.targets.push_back(target(g_first_read, &k_calls[0], "a library before it in LD_PRELOAD"));
  if (look.past_us.call != nullptr) {
    tell(look.past_us);
    return true;
  }
  for (const Target& target : look.targets) {
    if (!comes_to_us(target)) {
      tell(target);
      return true;
    }
    remember(target.function);
  }
  return look.is_unbound_seen;
}

void look() {
  if ((process::serves_copies() && !past_libc::is_doubted()) || !process::is_active() ||
      !process::owns_table() || base::may_be_in_handler())
    return;
  // A signal handler that jumps out of the check would leave the loader's lock held and prevent all
  // later checks.
  const BlockSignals block;
  if (g_is_looking.exchange(true, std::memory_order_acquire)) return;
  const KeepErrno keep;
  try {
    if (profile::loader_lock::is_free_soon() && !look_at_all()) past_libc::trust();
  } catch (const std::bad_alloc&) {
    // Memory is exhausted. The next check will examine the same libraries again.
  }
  g_is_looking.store(false, std::memory_order_release);
}

}  // namespace

void look_if_doubted() {
  if (past_libc::is_doubted()) look();
}

void before_dlopen(int flags) {
  if ((flags & RTLD_DEEPBIND) == 0 || !process::is_active() || !process::owns_table()) return;
  const KeepErrno keep;
  // The library's initializers may read files during dlopen.
  if (past_libc::doubt()) materialize_all(/*only_inherited=*/false, "dlopen");
}

void start() {
  profile::loader_lock::find();
  // RTLD_DEFAULT would find this library's own function (-Bsymbolic). A later call of dlsym would
  // discard the program's dlerror() message.
  g_first_read = reinterpret_cast<std::uintptr_t>(dlsym(dlopen(nullptr, RTLD_LAZY), "read"));
}

void look_if_due() {
  constexpr std::uint64_t k_pause_ns = 1'000'000'000;
  const std::uint64_t now = base::coarse_monotonic_ns();
  std::uint64_t due = g_next_ns.load(std::memory_order_relaxed);
  if (now >= due &&
      g_next_ns.compare_exchange_strong(due, now + k_pause_ns, std::memory_order_relaxed))
    look();
}

}  // namespace cube::shim::loaded_calls
