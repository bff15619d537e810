#include "cache/base/process/library_tables.h"

#include <algorithm>
#include <cstring>

namespace cube::base {
namespace {

template <typename T>
const T* at(std::uintptr_t address) {
  return reinterpret_cast<const T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

std::uint32_t hash_of(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

}  // namespace

AddressRange range_of(const ::dl_phdr_info& library) {
  AddressRange all{UINTPTR_MAX, 0};
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    const auto& segment = library.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const std::uintptr_t begin = library.dlpi_addr + segment.p_vaddr;
    all.begin = std::min(all.begin, begin);
    all.end = std::max<std::uintptr_t>(all.end, begin + segment.p_memsz);
  }
  return all.end != 0 ? all : AddressRange{};
}

LibraryTables::LibraryTables(const ::dl_phdr_info& library, const AddressRange& range)
    : base(library.dlpi_addr) {
  const ElfW(Dyn)* row = nullptr;
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    if (library.dlpi_phdr[i].p_type == PT_DYNAMIC)
      row = at<ElfW(Dyn)>(base + library.dlpi_phdr[i].p_vaddr);
  }
  read(row, range);
}

LibraryTables::LibraryTables(const ::link_map& library) : base(library.l_addr) {
  read(library.l_ld, {0, UINTPTR_MAX});
}

// glibc has already converted these offsets into addresses, except in the kernel's own library
// (vdso).
void LibraryTables::read(const ElfW(Dyn) * row, const AddressRange& range) {
  const auto pointer = [&] {
    return range.has(row->d_un.d_ptr) ? row->d_un.d_ptr : base + row->d_un.d_ptr;
  };
  for (; row != nullptr && row->d_tag != DT_NULL; ++row) {
    switch (row->d_tag) {
      case DT_SYMTAB: symbols = pointer(); break;
      case DT_STRTAB: names = pointer(); break;
      case DT_GNU_HASH: hash = pointer(); break;
      case DT_RELA: rela = pointer(); break;
      case DT_RELASZ: rela_bytes = row->d_un.d_val; break;
      case DT_JMPREL: jumps = pointer(); break;
      case DT_PLTRELSZ: jumps_bytes = row->d_un.d_val; break;
      default: break;
    }
  }
}

const ElfW(Sym) & LibraryTables::symbol(std::size_t number) const {
  return at<ElfW(Sym)>(symbols)[number];
}

const char* LibraryTables::name(const ElfW(Sym) & symbol) const {
  return at<char>(names) + symbol.st_name;
}

// DT_GNU_HASH is four words, a Bloom filter, the number of the first symbol of each bucket, and a
// word for each symbol. The lowest bit of such a word marks the last symbol of its bucket.
const ElfW(Sym) * LibraryTables::find(const char* wanted) const {
  if (hash == 0 || symbols == 0 || names == 0) return nullptr;
  const auto* const head = at<std::uint32_t>(hash);
  const std::uint32_t buckets = head[0], first = head[1], filters = head[2], shift = head[3];
  if (buckets == 0 || filters == 0) return nullptr;
  const std::uint32_t value = hash_of(wanted);
  const auto* const filter = at<std::uint64_t>(hash + 4 * sizeof *head);
  const std::uint64_t bits = filter[value / 64 % filters];
  if ((bits >> (value % 64) & bits >> ((value >> shift) % 64) & 1) == 0) return nullptr;
  const auto* const bucket = at<std::uint32_t>(reinterpret_cast<std::uintptr_t>(filter + filters));
  const auto* const chain = bucket + buckets;
  std::uint32_t number = bucket[value % buckets];
  if (number < first) return nullptr;
  for (;; ++number) {
    const std::uint32_t word = chain[number - first];
    if ((word | 1) == (value | 1) && symbol(number).st_shndx != SHN_UNDEF &&
        std::strcmp(name(symbol(number)), wanted) == 0)
      return &symbol(number);
    if ((word & 1) != 0) return nullptr;
  }
}

}  // namespace cube::base
