#include "cache/tier/disk/disk_index.h"

#include <sys/file.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cache/base/memory/can_read.h"
#include "cache/base/memory/kernel_page.h"
#include "cache/base/process/rlimit_fsize.h"
#include "cache/tier/disk/disk_directory.h"

namespace cube::cache {

namespace sys = base::sys;

namespace {

constexpr int k_madv_populate_write = 23;
constexpr std::uint32_t k_most_rows = 1 << 18;
constexpr std::uint64_t k_most_buckets = 1ULL << 31;
constexpr std::uint32_t k_number_mask = 0x3ffff, k_offset_mask = 0x3fffff, k_class_mask = 0x7f;
// Must be changed whenever the format of the slots changes.
constexpr std::uint32_t k_index_version = 2;
// Set if the kernel has no MADV_POPULATE_WRITE (Linux before 5.14). can_write() then tests only
// whether the page can be read.
constinit std::atomic<bool> g_cannot_ask{false};

// The size classes. From 1 KiB to 16 MiB, there are eight for each power of two, so that a read is
// at most an eighth too long. From 16 MiB to 256 MiB, there are four for each power of two.
constexpr std::uint32_t k_fine_octaves = 14, k_fine = 8, k_coarse = 4;
constexpr std::uint32_t k_first_coarse = k_fine_octaves * k_fine;
constexpr std::uint64_t bytes_of_class(std::uint32_t c) {
  const bool is_fine = c < k_first_coarse;
  const std::uint32_t steps = is_fine ? k_fine : k_coarse;
  const std::uint32_t octave =
      is_fine ? c / k_fine : k_fine_octaves + (c - k_first_coarse) / k_coarse;
  const std::uint32_t step = is_fine ? c % k_fine : (c - k_first_coarse) % k_coarse;
  return (std::uint64_t{1024} << octave) / steps * (steps + step + 1);
}
static_assert(bytes_of_class(0) == 1152 && bytes_of_class(127) == k_most_disk_segment_bytes);

// Returns the smallest class for this number of bytes.
constexpr std::uint32_t class_of(std::uint64_t bytes) {
  if (bytes <= 1024) return 0;
  const std::uint64_t last = bytes - 1;
  const auto octave = static_cast<std::uint32_t>(std::bit_width(last >> 10)) - 1;
  const std::uint64_t begin = std::bit_floor(last);
  const bool is_fine = octave < k_fine_octaves;
  // The width is at least 1 even without std::max, but clang's analyzer cannot infer this.
  const std::uint64_t width = std::max<std::uint64_t>(begin / (is_fine ? k_fine : k_coarse), 1);
  const auto step = static_cast<std::uint32_t>((last - begin) / width);
  return std::min(is_fine ? octave * k_fine + step
                          : k_first_coarse + (octave - k_fine_octaves) * k_coarse + step,
                  127U);
}
static_assert(class_of(1024) == 0 && class_of(1152) == 0 && class_of(1153) == 1 &&
              class_of(2048) == 7 && class_of(2049) == 8);
static_assert(class_of(16 << 20) == 111 && class_of((16 << 20) + 1) == 112 &&
              class_of(k_most_disk_segment_bytes) == 127);

std::uint64_t hash_of(const DiskIndexHeader& header) {
  return base::hash_bytes(&header, offsetof(DiskIndexHeader, hash));
}

}  // namespace

DiskGeometry DiskGeometry::of_sizes(std::uint64_t first_buckets, std::uint32_t row_count) {
  DiskGeometry g;
  g.row_count = row_count;
  std::uint64_t at =
      base::round_up(k_page + std::uint64_t{row_count} * sizeof(DiskSegmentRow), k_page);
  for (std::uint32_t t = 0; t < k_tables; ++t) {
    // The second table is small. Its room is for the few entries whose two buckets are full long
    // before the first table is full.
    const std::uint64_t buckets[] = {first_buckets, first_buckets / 8 + 1, 2 * first_buckets,
                                     5 * first_buckets};
    g.bucket_count[t] = buckets[t];
    g.table_at[t] = at;
    at = base::round_up(at + g.bucket_count[t] * sizeof(DiskBucket), k_page);
  }
  g.file_bytes = at;
  return g;
}

DiskGeometry DiskGeometry::of(std::uint64_t files, std::uint64_t segments) {
  // Each file needs two slots. The table has half as many again, because otherwise some buckets
  // would be full too early.
  const std::uint64_t slots = std::max<std::uint64_t>(files * 3, 4096);
  const std::uint64_t buckets =
      std::min((slots + DiskBucket::k_slots - 1) / DiskBucket::k_slots, k_most_buckets / 8);
  const std::uint64_t rows = std::bit_ceil(std::max<std::uint64_t>(2 * segments, 64));
  return of_sizes(buckets, static_cast<std::uint32_t>(std::min<std::uint64_t>(rows, k_most_rows)));
}

std::uint64_t DiskIndex::current_boot() {
  char text[64] = {};
  const long n = sys::read_small_file("/proc/sys/kernel/random/boot_id", text, sizeof text);
  return sys::failed(n) || n == 0 ? 0 : base::hash_bytes(text, static_cast<std::size_t>(n));
}

base::Result<DiskIndex> DiskIndex::map(int fd, const DiskGeometry& geometry) {
  auto mapping = base::Mapping::shared(fd, 0, geometry.file_bytes, PROT_READ | PROT_WRITE);
  if (!mapping) return base::fail(mapping.error().value);
  // Disables readahead, because adjacent buckets are unrelated, and keeps the index out of core
  // dumps.
  sys::madvise(mapping->data(), mapping->size(), MADV_RANDOM);
  sys::madvise(mapping->data(), mapping->size(), MADV_DONTDUMP);
  DiskIndex index;
  index.mapping_ = std::move(*mapping);
  index.geometry_ = geometry;
  struct ::stat st {};
  sys::fstat(fd, &st);
  index.device_ = st.st_dev;
  index.inode_ = st.st_ino;
  return index;
}

void DiskIndex::format(std::uint64_t boot) const {
  DiskIndexHeader& head = header();
  head.magic = DiskIndexHeader::k_magic;
  head.version = k_index_version;
  head.header_bytes = sizeof(DiskIndexHeader);
  head.boot = boot;
  head.geometry = geometry_;
  head.tables.store(1, std::memory_order_relaxed);
  head.next_number.store(1, std::memory_order_relaxed);
  head.hash = hash_of(head);
}

base::Result<void> DiskIndex::populate(std::uint64_t from, std::uint64_t to) const {
  constexpr std::uint64_t k_piece = 16 << 20;
  for (std::uint64_t at = from; at < to; at += k_piece) {
    const long error =
        sys::madvise(mapping_.data() + at, std::min(k_piece, to - at), k_madv_populate_write);
    if (error == -EINVAL || error == -ENOSYS) return {};
    if (sys::failed(error)) return base::fail(error == -EFAULT ? EIO : static_cast<int>(-error));
  }
  return {};
}

base::Result<DiskIndex> DiskIndex::create(const char* path, const DiskGeometry& geometry,
                                          std::uint64_t boot) {
  if (geometry.file_bytes > base::file_size_limit()) return base::fail(EFBIG);
  auto fd = base::open_fd(path, O_RDWR | O_CREAT | O_TRUNC | k_open_below, 0600);
  if (!fd) return base::fail(fd.error().value);
  if (const long e = sys::ftruncate(fd->get(), static_cast<std::int64_t>(geometry.file_bytes));
      sys::failed(e))
    return base::fail(static_cast<int>(-e));
  // Reserves room. Without room on the disk, a store into a page could raise SIGBUS.
  const long reserved =
      sys::fallocate(fd->get(), 0, 0, static_cast<std::int64_t>(geometry.table_at[1]));
  if (sys::failed(reserved)) return base::fail(static_cast<int>(-reserved));
  sys::raw(SYS_flock, fd->get(), LOCK_SH | LOCK_NB);
  auto index = map(fd->get(), geometry);
  if (!index) return index;
  if (const auto there = index->populate(0, geometry.table_at[0]); !there)
    return base::fail(there.error().value);
  index->format(boot);
  return index;
}

base::Result<DiskIndex> DiskIndex::create_private(const DiskGeometry& geometry) {
  if (geometry.file_bytes > base::file_size_limit()) return base::fail(EFBIG);
  const long fd = sys::memfd_create("cubeshim-disk-index", MFD_CLOEXEC);
  if (sys::failed(fd)) return base::fail(static_cast<int>(-fd));
  const base::UniqueFd owner(static_cast<int>(fd));
  if (const long e = sys::ftruncate(owner.get(), static_cast<std::int64_t>(geometry.file_bytes));
      sys::failed(e))
    return base::fail(static_cast<int>(-e));
  auto index = map(owner.get(), geometry);
  if (index) index->format(0);
  return index;
}

base::Result<DiskIndex> DiskIndex::open(const char* path, std::uint64_t boot) {
  auto fd = base::open_fd(path, O_RDWR | k_open_below);
  if (!fd) return base::fail(fd.error().value);
  struct ::stat st {};
  if (sys::failed(sys::fstat(fd->get(), &st)) || !S_ISREG(st.st_mode)) return base::fail(EBADMSG);
  // Each user of the index holds a shared lock through its mapping. If there is such a lock, the
  // index belongs to this boot, even if its header names another boot.
  const bool is_alone = !sys::failed(sys::raw(SYS_flock, fd->get(), LOCK_EX | LOCK_NB));
  sys::raw(SYS_flock, fd->get(), LOCK_SH | LOCK_NB);
  alignas(DiskIndexHeader) std::byte bytes[sizeof(DiskIndexHeader)];
  if (sys::pread(fd->get(), bytes, sizeof bytes, 0) != static_cast<long>(sizeof bytes))
    return base::fail(EBADMSG);
  const auto& head = *reinterpret_cast<const DiskIndexHeader*>(bytes);
  if (head.magic != DiskIndexHeader::k_magic || head.version != k_index_version ||
      head.header_bytes != sizeof(DiskIndexHeader) || head.hash != hash_of(head)) {
    return base::fail(EBADMSG);
  }
  const DiskGeometry& g = head.geometry;
  if (!std::has_single_bit(g.row_count) || g.row_count > k_most_rows || g.bucket_count[0] == 0 ||
      g.bucket_count[0] > k_most_buckets ||
      g != DiskGeometry::of_sizes(g.bucket_count[0], g.row_count) ||
      g.file_bytes != static_cast<std::uint64_t>(st.st_size)) {
    return base::fail(EBADMSG);
  }
  if (is_alone && (boot == 0 || head.boot != boot)) return base::fail(ESTALE);
  auto index = map(fd->get(), g);
  if (index) index->is_shared_ = !is_alone;
  return index;
}

std::uint32_t DiskIndex::tables() const {
  // The acquire pairs with the release in add_table: a reader that sees the number can use all
  // these tables. The clamp is for a corrupt file.
  return std::clamp(header().tables.load(std::memory_order_acquire), 1U, DiskGeometry::k_tables);
}

std::uint64_t DiskIndex::next_table_bytes() const {
  const std::uint32_t n = tables();
  return end_of_tables(std::min(n + 1, DiskGeometry::k_tables)) - end_of_tables(n);
}

bool DiskIndex::can_read(const void* at) { return base::can_read(at); }

bool DiskIndex::can_write(const void* at) {
  if (g_cannot_ask.load(std::memory_order_relaxed)) return can_read(at);
  const std::uint64_t page_bytes = base::kernel_page();
  auto* const page =
      reinterpret_cast<void*>(base::round_down(reinterpret_cast<std::uintptr_t>(at), page_bytes));
  const long error = sys::madvise(page, page_bytes, k_madv_populate_write);
  if (!sys::failed(error) || error == -EAGAIN || error == -EINTR) return true;
  if (error != -EINVAL && error != -ENOSYS) return false;
  g_cannot_ask.store(true, std::memory_order_relaxed);
  return can_read(at);
}

bool DiskIndex::is_there() const {
  const std::uint64_t bytes = geometry_.table_at[0];
  const long error = sys::madvise(mapping_.data(), bytes, k_madv_populate_write);
  return !sys::failed(error) || error == -EINVAL || error == -ENOSYS || error == -EAGAIN ||
         error == -EINTR;
}

std::uint64_t DiskIndex::word_of(std::uint64_t hash, std::uint32_t number, std::uint64_t offset,
                                 std::uint64_t bytes) {
  return ((hash & 0xffff) << 48) | (std::uint64_t{class_of(bytes)} << 40) |
         (std::uint64_t{number & k_number_mask} << 22) |
         ((offset / k_record_alignment) & k_offset_mask);
}

bool DiskIndex::is_living(std::uint64_t word, DiskPlace& place) const {
  const std::uint32_t number = number_in(word);
  const DiskSegmentRow& row = row_of(number);
  const std::uint64_t state = row.word.load(std::memory_order_acquire);
  if (((state >> 32) & k_number_mask) != number) return false;
  const auto is = static_cast<DiskSegmentState>(state & 0xffffffff);
  if (is != DiskSegmentState::open && is != DiskSegmentState::sealed) return false;
  place.number = static_cast<std::uint32_t>(state >> 32);
  place.offset = (word & k_offset_mask) * k_record_alignment;
  place.bytes_at_most = bytes_of_class(static_cast<std::uint32_t>((word >> 40) & k_class_mask));
  return true;
}

DiskIndex::Slot* DiskIndex::slot_for(std::uint64_t hash, std::uint64_t& expected) const {
  DiskPlace place;
  for (std::uint32_t t = 0, n = tables(); t < n; ++t) {
    Slot* best = nullptr;
    int most_free = 0;
    for (const std::uint64_t b : {first_bucket(hash, t), second_bucket(hash, t)}) {
      DiskBucket& bucket = table(t)[b];
      if (!can_write(&bucket)) continue;
      Slot* free_slot = nullptr;
      std::uint64_t free_word = 0;
      int free_slots = 0;
      for (auto& slot : bucket.slots) {
        const std::uint64_t word = slot.load(std::memory_order_acquire);
        if (word != 0 && is_living(word, place)) continue;
        ++free_slots;
        free_slot = &slot;
        free_word = word;
      }
      if (free_slots <= most_free) continue;
      most_free = free_slots;
      best = free_slot;
      expected = free_word;
      // If this bucket is far from full, the other bucket is not even read from memory.
      if (free_slots > DiskBucket::k_slots / 2) break;
    }
    if (best != nullptr) return best;
  }
  return nullptr;
}

base::Result<void> DiskIndex::insert(std::uint64_t hash, std::uint64_t word) {
  for (int attempt = 0; attempt < 16; ++attempt) {
    std::uint64_t expected = 0;
    Slot* const slot = slot_for(hash, expected);
    if (slot == nullptr) return base::fail(ENOSPC);
    // Pairs with the load in visit(). seq_cst, because the caller loads the record's mark
    // afterwards (DiskStore::publish).
    if (slot->compare_exchange_strong(expected, word, std::memory_order_seq_cst)) return {};
  }
  return base::fail(ENOSPC);
}

bool DiskIndex::confirm(std::uint64_t hash, std::uint64_t word) {
  for (std::uint32_t t = 0, n = tables(); t < n; ++t) {
    for (const std::uint64_t b : {first_bucket(hash, t), second_bucket(hash, t)}) {
      DiskBucket& bucket = table(t)[b];
      if (!can_write(&bucket)) continue;
      for (auto& slot : bucket.slots) {
        std::uint64_t expected = word | k_tentative;
        if (slot.load(std::memory_order_relaxed) == expected)
          return slot.compare_exchange_strong(expected, word, std::memory_order_seq_cst);
      }
    }
  }
  return false;
}

bool DiskIndex::remove(std::uint64_t hash, std::uint32_t number, std::uint64_t offset) {
  constexpr std::uint64_t k_place = (1ULL << 40) - 1;
  const std::uint64_t wanted = word_of(hash, number, offset, 0) & k_place;
  bool found = false;
  for (std::uint32_t t = 0, n = tables(); t < n; ++t) {
    for (const std::uint64_t b : {first_bucket(hash, t), second_bucket(hash, t)}) {
      DiskBucket& bucket = table(t)[b];
      if (!can_write(&bucket)) continue;
      for (auto& slot : bucket.slots) {
        std::uint64_t word = slot.load(std::memory_order_acquire);
        // Tries again if the entry was confirmed at the same time.
        while (word != 0 && (word & k_place) == wanted && (word >> 48) == (hash & 0xffff)) {
          if (!slot.compare_exchange_weak(word, 0, std::memory_order_seq_cst)) continue;
          found = true;
          break;
        }
      }
    }
  }
  return found;
}

base::Result<base::UniqueFd> DiskIndex::reopen(const char* path) const {
  auto fd = base::open_fd(path, O_RDWR | k_open_below);
  if (!fd) return fd;
  struct ::stat st {};
  if (sys::failed(sys::fstat(fd->get(), &st)) || st.st_dev != device_ || st.st_ino != inode_)
    return base::fail(ESTALE);
  return fd;
}

base::Result<void> DiskIndex::add_table(const char* path, std::uint32_t known) {
  if (tables() != known) return {};
  if (known >= DiskGeometry::k_tables) return base::fail(ENOSPC);
  const std::uint64_t from = geometry_.table_at[known];
  const std::uint64_t to = end_of_tables(known + 1);
  if (path != nullptr) {
    if (to > base::file_size_limit()) return base::fail(EFBIG);
    const auto fd = reopen(path);
    if (!fd) return base::fail(fd.error().value);
    const long error = sys::fallocate(fd->get(), 0, static_cast<std::int64_t>(from),
                                      static_cast<std::int64_t>(to - from));
    if (sys::failed(error)) return base::fail(static_cast<int>(-error));
  }
  if (const auto there = populate(from, to); !there) return there;
  header().tables.store(known + 1, std::memory_order_release);
  return {};
}

}  // namespace cube::cache
