// The memory of a loaded library, and the tables by which the loader binds it: its symbols, and its
// relocations, which name the words that hold addresses. The tables are part of the library, so
// they may be read only while the library cannot be unloaded, as in dl_iterate_phdr. Thread-safe;
// async-signal-safe.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

namespace cube::base {

struct AddressRange {
  std::uintptr_t begin = 0, end = 0;
  bool has(std::uintptr_t address) const { return address - begin < end - begin; }
};

// From the first segment of the library to its last. Empty if it has none.
AddressRange range_of(const ::dl_phdr_info& library);

// A table that the library does not have is 0.
struct LibraryTables {
  // The types of relocations that make a word hold the address of a function: a slot that is bound
  // at the first call, a slot that is bound at load, and a pointer in data.
#if defined(__x86_64__)
  static constexpr std::uint32_t k_jump = R_X86_64_JUMP_SLOT, k_global = R_X86_64_GLOB_DAT,
                                 k_pointer = R_X86_64_64;
#elif defined(__aarch64__)
  static constexpr std::uint32_t k_jump = R_AARCH64_JUMP_SLOT, k_global = R_AARCH64_GLOB_DAT,
                                 k_pointer = R_AARCH64_ABS64;
#endif

  std::uintptr_t base = 0, symbols = 0, names = 0, hash = 0, rela = 0, jumps = 0;
  std::size_t rela_bytes = 0, jumps_bytes = 0;

  LibraryTables() = default;
  LibraryTables(const ::dl_phdr_info& library, const AddressRange& range);
  explicit LibraryTables(const ::link_map& library);

  const ElfW(Sym) & symbol(std::size_t number) const;
  const char* name(const ElfW(Sym) & symbol) const;
  // Returns the symbol of this name, in any version, or null if the library does not define one.
  const ElfW(Sym) * find(const char* wanted) const;

 private:
  // Addresses outside `range` are offsets in the library.
  void read(const ElfW(Dyn) * row, const AddressRange& range);
};

}  // namespace cube::base
