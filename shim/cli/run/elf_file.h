// Properties of an executable or a library that decide whether the loader can preload our library
// into it. They are read from the file itself: headers, dynamic section, needed versions. All
// offsets are checked, because the file may contain anything. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cube::cli {

struct ElfFile {
  // For 64 bits and this processor. If false, the members below are not set.
  bool is_of_this_machine = false;
  std::string interpreter;          // the loader; empty if the file is static
  std::vector<std::string> needed;  // DT_NEEDED
  bool is_go = false;
  unsigned glibc = 0;  // the newest version whose symbols it uses: 2036 is 2.36; 0: none

  bool needs_libc() const;
  bool is_musl() const;  // the file's loader is musl's
};

// Returns nothing if the file cannot be read, or is not an ELF file.
std::optional<ElfFile> read_elf(const std::string& path);

// The functions of a file, by the offset of their code in it.
class ElfSymbols {
 public:
  struct Symbol {
    std::uint64_t offset = 0, size = 0;
    std::string name;
  };
  ElfSymbols() = default;
  explicit ElfSymbols(std::vector<Symbol> symbols);  // symbols in any order
  // Returns null if no function covers this byte.
  const std::string* name_at(std::uint64_t offset) const;

 private:
  std::vector<Symbol> symbols_;
};

// The symbols of the symbol table, or the exported ones if the file is stripped. Empty if it cannot
// be read or has none.
ElfSymbols read_symbols(const std::string& path);

// 2036 for "2.36"; 0 if it is not a version.
unsigned glibc_number(std::string_view text);

}  // namespace cube::cli
