// The facts of an executable or a library that decide whether the loader can preload ours into it.
// Read from the file itself: headers, dynamic section, needed versions. Offsets are checked, for
// the file may be anything. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cube::cli {

struct ElfFile {
  bool is_of_this_machine = false;  // 64 bits and this processor; else nothing below is known
  std::string interpreter;          // the loader; empty: it is static
  std::vector<std::string> needed;  // DT_NEEDED
  bool is_go = false;
  unsigned glibc = 0;  // the newest version whose symbols it takes: 2036 is 2.36; 0: none

  bool needs_libc() const;
  bool is_musl() const;  // its loader is musl's
};

// Nothing: it cannot be read, or is no ELF file.
std::optional<ElfFile> read_elf(const std::string& path);

// Functions of a file, by where their code lies in it.
class ElfSymbols {
 public:
  struct Symbol {
    std::uint64_t offset = 0, size = 0;
    std::string name;
  };
  ElfSymbols() = default;
  explicit ElfSymbols(std::vector<Symbol> symbols);  // in any order
  // Null: no function has this byte.
  const std::string* name_at(std::uint64_t offset) const;

 private:
  std::vector<Symbol> symbols_;
};

// The symbols of the symbol table; of a stripped file, those that it exports. Empty: it cannot be
// read, or has none.
ElfSymbols read_symbols(const std::string& path);

// "2.36" is 2036; 0: it is no version.
unsigned glibc_number(std::string_view text);

}  // namespace cube::cli
