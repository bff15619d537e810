#include "bench/calls/micro/read_methods.h"

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace cube::bench {
namespace {

// Files are laid out like the cache's records: small files follow one another, larger files begin
// on a page.
constexpr std::size_t k_page = 4096;
constexpr std::size_t k_line = 64;
constexpr std::size_t k_on_page_from = 32 << 10;
constexpr std::size_t k_huge_page = 2 << 20;
constexpr int k_madv_collapse = 25;  // MADV_COLLAPSE, Linux 6.1; Debian 12's headers do not have it

constexpr std::size_t on_page(std::size_t bytes) { return (bytes + k_page - 1) / k_page * k_page; }

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw std::runtime_error(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

// The shim's region has huge pages if the kernel provides them, so the arena of the bare copy uses
// them too.
char* map_on_huge_pages(int fd, std::size_t bytes) {
  const std::size_t whole = (bytes + k_huge_page - 1) / k_huge_page * k_huge_page;
  void* const room = ::mmap(nullptr, whole + k_huge_page, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  const auto begin =
      (reinterpret_cast<std::uintptr_t>(room) + k_huge_page - 1) / k_huge_page * k_huge_page;
  void* const at = ::mmap(reinterpret_cast<void*>(begin), whole, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_FIXED, fd, 0);
  if (at == MAP_FAILED) return nullptr;
  // If the kernel has no huge pages, this call fails, and the copy uses small pages.
  ::madvise(at, whole, k_madv_collapse);
  return static_cast<char*>(at);
}

// A reader with a buffer that is reused for each file. The buffer begins `behind` bytes after a
// page boundary, 16 by default like malloc's large buffers.
class BufferReader : public Reader {
 public:
  static constexpr std::size_t k_of_malloc = 16;
  explicit BufferReader(const FileSet& set, std::size_t behind = k_of_malloc)
      : set_(set),
        room_(on_page(set.largest() + k_page)),
        pages_(static_cast<char*>(std::aligned_alloc(k_page, room_)), &std::free),
        buffer_(pages_.get() + behind, set.largest() + 1) {
    std::memset(pages_.get(), 0, room_);
  }

 protected:
  const FileSet& set_;

 private:
  std::size_t room_;
  std::unique_ptr<char, void (*)(void*)> pages_;

 protected:
  const std::span<char> buffer_;
};

class PosixReader final : public BufferReader {
 public:
  using BufferReader::BufferReader;
  std::span<const char> read(std::uint32_t index) override {
    const char* const path = set_.files()[index].path.c_str();
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(path, "open");
    struct stat st {};
    if (::fstat(fd, &st) != 0) fail(path, "fstat");
    const auto size = static_cast<std::size_t>(st.st_size);
    if (size > buffer_.size()) fail(path, "has grown");
    std::size_t done = 0;
    while (done < size) {
      const ssize_t n = ::read(fd, buffer_.data() + done, size - done);
      if (n <= 0) fail(path, "read");
      done += static_cast<std::size_t>(n);
    }
    if (::close(fd) != 0) fail(path, "close");
    return {buffer_.data(), size};
  }
};

class IfstreamReader final : public Reader {
 public:
  explicit IfstreamReader(const FileSet& set) : set_(set) {}
  std::span<const char> read(std::uint32_t index) override {
    const std::string& path = set_.files()[index].path;
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    if (!in) fail(path, "ifstream");
    std::string text(static_cast<std::size_t>(in.tellg()), '\0');
    in.seekg(0);
    if (!in.read(text.data(), static_cast<std::streamsize>(text.size())))
      fail(path, "ifstream::read");
    text_ = std::move(text);
    return text_;
  }

 private:
  const FileSet& set_;
  std::string text_;
};

class FreadReader final : public BufferReader {
 public:
  using BufferReader::BufferReader;
  std::span<const char> read(std::uint32_t index) override {
    const char* const path = set_.files()[index].path.c_str();
    std::FILE* const file = std::fopen(path, "rb");
    if (file == nullptr) fail(path, "fopen");
    if (std::fseek(file, 0, SEEK_END) != 0) fail(path, "fseek");
    const auto size = static_cast<std::size_t>(std::ftell(file));
    std::rewind(file);
    if (size > buffer_.size() || std::fread(buffer_.data(), 1, size, file) != size)
      fail(path, "fread");
    if (std::fclose(file) != 0) fail(path, "fclose");
    return {buffer_.data(), size};
  }
};

class CopyReader final : public BufferReader {
 public:
  CopyReader(const FileSet& set, const Arena& arena, std::size_t behind)
      : BufferReader(set, behind), arena_(arena) {}
  std::span<const char> read(std::uint32_t index) override {
    const std::size_t size = set_.files()[index].size;
    std::memcpy(buffer_.data(), arena_.data(index), size);
    return {buffer_.data(), size};
  }

 private:
  const Arena& arena_;
};

// The ideal reader does only the work that no cache can leave out: it hashes the path, looks up one
// slot of a table, compares the path, and copies the stat and the bytes. It has no fds, pins or
// counters, and only one process.
class IdealReader final : public BufferReader {
 public:
  IdealReader(const FileSet& set, const Arena& arena)
      : BufferReader(set), slots_(std::bit_ceil(2 * set.count())) {
    for (std::uint32_t i = 0; i < set.count(); ++i) {
      Slot* slot = &first_slot(hash_of(set.files()[i].path));
      while (slot->head != nullptr) slot = slot == &slots_.back() ? slots_.data() : slot + 1;
      *slot = {hash_of(set.files()[i].path), &arena.head(i)};
    }
  }
  std::span<const char> read(std::uint32_t index) override {
    const std::string& path = set_.files()[index].path;
    const std::uint64_t hash = hash_of(path);
    const Slot* slot = &first_slot(hash);
    while (slot->head != nullptr && (slot->hash != hash || slot->head->path() != path))
      slot = slot == &slots_.back() ? slots_.data() : slot + 1;
    if (slot->head == nullptr) fail(path, "no such file");
    stat_ = slot->head->stat;
    benchmark::DoNotOptimize(stat_);
    const auto size = static_cast<std::size_t>(stat_.st_size);
    std::memcpy(buffer_.data(), slot->head->data(), size);
    return {buffer_.data(), size};
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    const Arena::Head* head = nullptr;
  };
  static std::uint64_t hash_of(const std::string& path) {
    return XXH3_64bits(path.data(), path.size());
  }
  Slot& first_slot(std::uint64_t hash) { return slots_[hash & (slots_.size() - 1)]; }

  std::vector<Slot> slots_;
  struct stat stat_ {};
};

class DirectReader final : public Reader {
 public:
  DirectReader(const FileSet& set, const DiskArena& arena)
      : set_(set),
        arena_(arena),
        buffer_(static_cast<char*>(std::aligned_alloc(k_page, on_page(set.largest())))) {}
  ~DirectReader() override { std::free(buffer_); }
  DirectReader(const DirectReader&) = delete;
  DirectReader& operator=(const DirectReader&) = delete;
  std::span<const char> read(std::uint32_t index) override {
    const std::size_t size = set_.files()[index].size;
    const auto n =
        ::pread(arena_.fd(), buffer_, on_page(size), static_cast<off_t>(arena_.offset(index)));
    if (n < 0 || static_cast<std::size_t>(n) < size) fail(set_.files()[index].path, "pread");
    return {buffer_, size};
  }

 private:
  const FileSet& set_;
  const DiskArena& arena_;
  char* buffer_;
};

}  // namespace

DiskArena::DiskArena(const FileSet& set, const std::string& path) {
  for (const File& file : set.files()) {
    offsets_.push_back(bytes_);
    bytes_ += on_page(file.size);
  }
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0 || static_cast<std::size_t>(st.st_size) != bytes_)
    write(set, path);
  fd_ = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd_ < 0) fail(path, "open");
}

void DiskArena::write(const FileSet& set, const std::string& path) const {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) fail(path, "open");
  PosixReader reader(set);
  std::vector<char> page(on_page(set.largest()));
  for (std::uint32_t i = 0; i < set.count(); ++i) {
    const auto bytes = reader.read(i);
    std::memcpy(page.data(), bytes.data(), bytes.size());
    const std::size_t whole = on_page(bytes.size());
    if (::pwrite(fd, page.data(), whole, static_cast<off_t>(offsets_[i])) !=
        static_cast<ssize_t>(whole))
      fail(path, "pwrite");
  }
  if (::fdatasync(fd) != 0) fail(path, "fdatasync");
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

DiskArena::~DiskArena() { ::close(fd_); }

Arena::Arena(const FileSet& set) {
  for (const File& file : set.files()) {
    const std::size_t head = (bytes_ + k_line - 1) / k_line * k_line;
    const std::size_t grain = file.size >= k_on_page_from ? k_page : k_line;
    const std::size_t data =
        (head + sizeof(Head) + file.path.size() + 1 + grain - 1) / grain * grain;
    heads_.push_back(head);
    data_.push_back(data);
    bytes_ = data + file.size;
  }
  const std::string name = fmt::format("/dev/shm/cubeshim-bench-arena-{}", getpid());
  const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) fail(name, "open");
  ::unlink(name.c_str());
  const std::size_t whole = (bytes_ + k_huge_page - 1) / k_huge_page * k_huge_page;
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(whole)); error != 0) {
    errno = error;
    fail(name, "posix_fallocate");
  }
  begin_ = map_on_huge_pages(fd, bytes_);
  if (begin_ == nullptr) fail(name, "mmap");
  ::close(fd);
  PosixReader reader(set);
  for (std::uint32_t i = 0; i < set.count(); ++i) {
    const std::string& path = set.files()[i].path;
    auto* const head = new (begin_ + heads_[i]) Head{{}, path.size(), data_[i] - heads_[i]};
    if (::stat(path.c_str(), &head->stat) != 0) fail(path, "stat");
    std::memcpy(head + 1, path.data(), path.size());
    const auto bytes = reader.read(i);
    std::memcpy(begin_ + data_[i], bytes.data(), bytes.size());
  }
}

Arena::~Arena() { ::munmap(begin_, bytes_); }

std::unique_ptr<Reader> make_reader(ReaderKind kind, const FileSet& set, const Arenas& arenas) {
  switch (kind) {
    case ReaderKind::posix: return std::make_unique<PosixReader>(set);
    case ReaderKind::ifstream: return std::make_unique<IfstreamReader>(set);
    case ReaderKind::fread: return std::make_unique<FreadReader>(set);
    case ReaderKind::copy: return std::make_unique<CopyReader>(set, *arenas.memory, 0);
    case ReaderKind::copy_16:
      return std::make_unique<CopyReader>(set, *arenas.memory, BufferReader::k_of_malloc);
    case ReaderKind::ideal: return std::make_unique<IdealReader>(set, *arenas.memory);
    case ReaderKind::direct: return std::make_unique<DirectReader>(set, *arenas.disk);
  }
  return nullptr;
}

}  // namespace cube::bench
