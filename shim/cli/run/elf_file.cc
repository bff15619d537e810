#include "shim/cli/run/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "cache/base/unique_fd.h"

namespace cube::cli {
namespace {

constexpr Elf64_Half k_own_machine =
#if defined(__x86_64__)
    EM_X86_64;
#elif defined(__aarch64__)
    EM_AARCH64;
#else
    EM_NONE;
#endif
constexpr std::uint64_t k_most_bytes_of_a_part = 16 << 20, k_most_bytes_of_symbols = 256 << 20;

class ElfReader {
 public:
  explicit ElfReader(int fd) : fd_(fd), size_(size_of(fd)) {}

  bool read(ElfFile& file) {
    if (!object(0, header_) || std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) return false;
    file.is_of_this_machine =
        header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_machine == k_own_machine;
    if (!file.is_of_this_machine) return true;
    programs_ = objects<Elf64_Phdr>(header_.e_phoff, header_.e_phnum);
    for (const auto& program : programs_) {
      if (program.p_type == PT_INTERP)
        file.interpreter = up_to_zero(part(program.p_offset, program.p_filesz));
      if (program.p_type == PT_DYNAMIC) read_dynamic(program, file);
    }
    file.is_go = has_section(".go.buildinfo") || has_section(".note.go.buildid");
    return true;
  }

  std::vector<ElfSymbols::Symbol> symbols() {
    ElfFile file;
    if (!read(file) || !file.is_of_this_machine) return {};
    const auto sections = objects<Elf64_Shdr>(header_.e_shoff, header_.e_shnum);
    std::vector<ElfSymbols::Symbol> found;
    for (const std::uint32_t type : {std::uint32_t{SHT_SYMTAB}, std::uint32_t{SHT_DYNSYM}}) {
      for (const auto& section : sections) {
        if (section.sh_type != type || section.sh_link >= sections.size()) continue;
        const auto& strings_of = sections[section.sh_link];
        const std::string strings =
            part(strings_of.sh_offset, strings_of.sh_size, k_most_bytes_of_symbols);
        for (const auto& symbol : objects<Elf64_Sym>(
                 section.sh_offset, section.sh_size / sizeof(Elf64_Sym), k_most_bytes_of_symbols)) {
          const auto kind = ELF64_ST_TYPE(symbol.st_info);
          if ((kind != STT_FUNC && kind != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF ||
              symbol.st_name >= strings.size())
            continue;
          found.push_back(
              {offset_of(symbol.st_value), symbol.st_size, strings.c_str() + symbol.st_name});
        }
      }
      if (!found.empty()) break;
    }
    return found;
  }

 private:
  std::string part(std::uint64_t at, std::uint64_t size,
                   std::uint64_t most = k_most_bytes_of_a_part) const {
    std::string bytes(std::min({size, most, size_}), '\0');
    const ssize_t n = pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return bytes;
  }
  static std::uint64_t size_of(int fd) {
    struct ::stat st {};
    return fstat(fd, &st) == 0 && st.st_size > 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
  }
  static std::string up_to_zero(const std::string& bytes) {
    return bytes.substr(0, bytes.find('\0'));
  }
  template <typename T>
  bool object(std::uint64_t at, T& object) const {
    const std::string bytes = part(at, sizeof object);
    if (bytes.size() != sizeof object) return false;
    std::memcpy(&object, bytes.data(), sizeof object);
    return true;
  }
  template <typename T>
  std::vector<T> objects(std::uint64_t at, std::uint64_t count,
                         std::uint64_t most = k_most_bytes_of_a_part) const {
    const std::string bytes = part(at, count * sizeof(T), most);
    std::vector<T> all(bytes.size() / sizeof(T));
    if (!all.empty()) std::memcpy(all.data(), bytes.data(), all.size() * sizeof(T));
    return all;
  }
  // Converts an address in the loaded file to an offset in the file.
  std::uint64_t offset_of(std::uint64_t address) const {
    for (const auto& program : programs_) {
      if (program.p_type == PT_LOAD && address >= program.p_vaddr &&
          address - program.p_vaddr < program.p_filesz)
        return program.p_offset + (address - program.p_vaddr);
    }
    return UINT64_MAX / 2;
  }

  void read_dynamic(const Elf64_Phdr& program, ElfFile& file) const {
    std::uint64_t strings_at = 0, strings_size = 0, versions_at = 0, versions = 0;
    std::vector<std::uint64_t> needed;
    for (const auto& row :
         objects<Elf64_Dyn>(program.p_offset, program.p_filesz / sizeof(Elf64_Dyn))) {
      if (row.d_tag == DT_NULL) break;
      if (row.d_tag == DT_NEEDED) needed.push_back(row.d_un.d_val);
      if (row.d_tag == DT_STRTAB) strings_at = row.d_un.d_ptr;
      if (row.d_tag == DT_STRSZ) strings_size = row.d_un.d_val;
      if (row.d_tag == DT_VERNEED) versions_at = row.d_un.d_ptr;
      if (row.d_tag == DT_VERNEEDNUM) versions = row.d_un.d_val;
    }
    const std::string strings = part(offset_of(strings_at), strings_size);
    const auto text = [&](std::uint64_t at) {
      return at < strings.size() ? std::string(strings.c_str() + at) : std::string();
    };
    for (const auto at : needed) file.needed.push_back(text(at));
    Elf64_Verneed row{};
    for (std::uint64_t at = offset_of(versions_at);
         versions_at != 0 && versions-- > 0 && object(at, row); at += row.vn_next) {
      Elf64_Vernaux version{};
      std::uint64_t next = at + row.vn_aux;
      for (unsigned i = 0; i < row.vn_cnt && object(next, version); ++i, next += version.vna_next) {
        constexpr std::string_view k_head = "GLIBC_";
        if (const std::string name = text(version.vna_name); name.starts_with(k_head))
          file.glibc =
              std::max(file.glibc, glibc_number(std::string_view(name).substr(k_head.size())));
        if (version.vna_next == 0) break;
      }
      if (row.vn_next == 0) break;
    }
  }

  bool has_section(std::string_view name) const {
    const auto sections = objects<Elf64_Shdr>(header_.e_shoff, header_.e_shnum);
    if (header_.e_shstrndx >= sections.size()) return false;
    const auto& row = sections[header_.e_shstrndx];
    const std::string names = part(row.sh_offset, row.sh_size);
    return std::any_of(sections.begin(), sections.end(), [&](const auto& s) {
      return s.sh_name < names.size() && name == names.c_str() + s.sh_name;
    });
  }

  const int fd_;
  const std::uint64_t size_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> programs_;
};

}  // namespace

bool ElfFile::needs_libc() const {
  return std::find(needed.begin(), needed.end(), "libc.so.6") != needed.end();
}

bool ElfFile::is_musl() const {
  return std::string_view(interpreter).substr(interpreter.rfind('/') + 1).starts_with("ld-musl");
}

std::optional<ElfFile> read_elf(const std::string& path) {
  const auto fd = base::open_fd(path.c_str(), O_RDONLY | O_NONBLOCK);
  ElfFile file;
  if (!fd || !ElfReader(fd->get()).read(file)) return std::nullopt;
  return file;
}

ElfSymbols::ElfSymbols(std::vector<Symbol> symbols) : symbols_(std::move(symbols)) {
  std::sort(symbols_.begin(), symbols_.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
}

const std::string* ElfSymbols::name_at(std::uint64_t offset) const {
  auto next = std::upper_bound(symbols_.begin(), symbols_.end(), offset,
                               [](auto at, const auto& symbol) { return at < symbol.offset; });
  // Several symbols may begin at the same offset, and some may have no size.
  for (int i = 0; i < 4 && next != symbols_.begin(); ++i) {
    --next;
    if (offset - next->offset < std::max<std::uint64_t>(next->size, 1)) return &next->name;
  }
  return nullptr;
}

ElfSymbols read_symbols(const std::string& path) {
  const auto fd = base::open_fd(path.c_str(), O_RDONLY | O_NONBLOCK);
  return fd ? ElfSymbols(ElfReader(fd->get()).symbols()) : ElfSymbols();
}

unsigned glibc_number(std::string_view text) {
  unsigned major = 0, minor = 0;
  const char* const end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, major);
  if (error != std::errc{} || dot == end || *dot != '.') return 0;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc{} || minor > 999) return 0;
  return major * 1000 + minor;
}

}  // namespace cube::cli
