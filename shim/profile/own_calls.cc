#include "shim/profile/own_calls.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cache/base/memory/kernel_page.h"
#include "cache/base/sys.h"

namespace cube::shim::profile {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t k_jump_slot = R_X86_64_JUMP_SLOT, k_global_data = R_X86_64_GLOB_DAT;
#else
constexpr std::uint32_t k_jump_slot = R_AARCH64_JUMP_SLOT, k_global_data = R_AARCH64_GLOB_DAT;
#endif

// The loader may have made the page read-only. The page stays writable afterwards, because it may
// also hold other data of the library.
bool put(std::uintptr_t slot, void* function) {
  const std::size_t page = base::kernel_page();
  auto* const at =
      reinterpret_cast<void*>(slot / page * page);  // NOLINT(performance-no-int-to-ptr)
  namespace sys = base::sys;
  if (sys::failed(
          sys::raw(SYS_mprotect, sys::arg(at), static_cast<long>(page), PROT_READ | PROT_WRITE)))
    return false;
  std::memcpy(reinterpret_cast<void*>(slot), &function,
              sizeof function);  // NOLINT(performance-no-int-to-ptr)
  return true;
}

}  // namespace

std::size_t take_calls(const link_map& library, const OwnCall* calls, std::size_t count) {
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  struct Relocations {
    const ElfW(Rela) * first = nullptr;
    std::size_t bytes = 0;
  } tables[2];
  for (const ElfW(Dyn)* row = library.l_ld; row->d_tag != DT_NULL; ++row) {
    // The loader has already converted these values into addresses.
    const auto pointer = row->d_un.d_ptr;
    if (row->d_tag == DT_SYMTAB)
      symbols = reinterpret_cast<const ElfW(Sym)*>(pointer);  // NOLINT(performance-no-int-to-ptr)
    if (row->d_tag == DT_STRTAB)
      names = reinterpret_cast<const char*>(pointer);  // NOLINT(performance-no-int-to-ptr)
    if (row->d_tag == DT_JMPREL)
      tables[0].first =
          reinterpret_cast<const ElfW(Rela)*>(pointer);  // NOLINT(performance-no-int-to-ptr)
    if (row->d_tag == DT_PLTRELSZ) tables[0].bytes = row->d_un.d_val;
    if (row->d_tag == DT_RELA)
      tables[1].first =
          reinterpret_cast<const ElfW(Rela)*>(pointer);  // NOLINT(performance-no-int-to-ptr)
    if (row->d_tag == DT_RELASZ) tables[1].bytes = row->d_un.d_val;
  }
  if (symbols == nullptr || names == nullptr) return 0;
  std::size_t taken = 0;
  for (const auto& table : tables) {
    const std::size_t rows = table.first != nullptr ? table.bytes / sizeof(ElfW(Rela)) : 0;
    for (std::size_t i = 0; i < rows; ++i) {
      const auto& row = table.first[i];
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(row.r_info));
      if (type != k_jump_slot && type != k_global_data) continue;
      const char* const name = names + symbols[ELF64_R_SYM(row.r_info)].st_name;
      const auto* const call = std::find_if(
          calls, calls + count, [&](const auto& c) { return std::strcmp(c.name, name) == 0; });
      if (call != calls + count && put(library.l_addr + row.r_offset, call->function)) ++taken;
    }
  }
  return taken;
}

}  // namespace cube::shim::profile
