// The properties of an executable or a library that decide whether the loader can preload
// libcubeshim.so. The properties are read from the headers, the dynamic section and the needed
// versions of the file. All offsets are checked, because the file may contain arbitrary bytes.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cube::cli {

struct ElfFile {
  // True for a 64-bit file of this processor. If false, the members below are not set.
  bool is_of_this_machine = false;
  std::string interpreter;          // the loader; empty if the file is static
  std::vector<std::string> needed;  // DT_NEEDED
  bool is_go = false;
  unsigned glibc = 0;  // the newest version whose symbols it uses: 2036 for 2.36; 0 for none

  bool needs_libc() const;
  bool is_musl() const;  // the file's loader is musl's
};

// Returns nothing if the file cannot be read, or is not an ELF file.
std::optional<ElfFile> read_elf(const std::string& path);

// The functions of a file, by the offset of their code in the file.
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

// Reads the symbol table or, if the file is stripped, the exported symbols. Returns an empty object
// if the file cannot be read or has no symbols.
ElfSymbols read_symbols(const std::string& path);

// Returns 2036 for "2.36", and 0 if the text is not a version.
unsigned glibc_number(std::string_view text);

}  // namespace cube::cli
