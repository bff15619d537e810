#include "shim/profile/own_calls.h"

#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cache/base/memory/kernel_page.h"
#include "cache/base/process/library_tables.h"
#include "cache/base/sys.h"

namespace cube::shim::profile {
namespace {

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
  const base::LibraryTables tables(library);
  if (tables.symbols == 0 || tables.names == 0) return 0;
  std::size_t taken = 0;
  for (const auto& [rows, bytes] :
       {std::pair{tables.jumps, tables.jumps_bytes}, std::pair{tables.rela, tables.rela_bytes}}) {
    if (rows == 0) continue;
    const auto* const first =
        reinterpret_cast<const ElfW(Rela)*>(rows);  // NOLINT(performance-no-int-to-ptr)
    for (const auto* row = first; row < first + bytes / sizeof *first; ++row) {
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(row->r_info));
      if (type != tables.k_jump && type != tables.k_global) continue;
      const char* const name = tables.name(tables.symbol(ELF64_R_SYM(row->r_info)));
      const auto* const call = std::find_if(
          calls, calls + count, [&](const auto& c) { return std::strcmp(c.name, name) == 0; });
      if (call != calls + count && put(library.l_addr + row->r_offset, call->function)) ++taken;
    }
  }
  return taken;
}

}  // namespace cube::shim::profile
