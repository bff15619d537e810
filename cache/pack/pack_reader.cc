#include "cache/pack/pack_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/memory/can_read.h"
#include "cache/base/memory/off_stack.h"
#include "cache/base/process/high_fd.h"
#include "cache/base/readahead.h"
#include "cache/pack/pack_io.h"
#include "cache/record/record_hash.h"

namespace cube::cache {
namespace {

// Whether the sizes in the header are consistent. If they are, no sum of sizes can overflow.
bool is_consistent(const PackHeader& h) {
  constexpr std::uint64_t k_most = 1ULL << 60;
  if (h.segment_bytes != k_pack_segment || h.records_begin != k_pack_records_begin ||
      h.file_bytes > k_most)
    return false;
  if (h.entries == 0 || h.entries > h.file_bytes / sizeof(PackSlot) ||
      h.table_bits != pack_table_bits(h.entries))
    return false;
  if (h.index_bytes != pack_table_bytes(h.table_bits) + h.entries * sizeof(PackSlot)) return false;
  if (h.records_end < h.records_begin || h.records_end > h.index_begin ||
      h.index_begin % k_page != 0)
    return false;
  if (h.index_begin > h.file_bytes ||
      h.file_bytes - h.index_begin != h.index_bytes + sizeof(PackFooter))
    return false;
  return h.files <= h.entries && h.directories <= h.entries && h.links <= h.entries &&
         h.files + h.directories + h.links == h.entries;
}

}  // namespace

std::unique_ptr<PackReader> PackReader::open(const std::string& file, std::string& why) {
  std::unique_ptr<PackReader> pack(new PackReader);
  auto fd = base::open_fd(file.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd) {
    why = fmt::format("cannot open {}: {}", file, base::text_of_error(fd.error().value));
    return nullptr;
  }
  pack->name_ = file;
  pack->fd_.store(fd->release(), std::memory_order_relaxed);
  std::string what;
  if (pack->read_frame(what)) {
    // keeps_pages() tries a shared mapping. A mount that keeps no pages refuses it.
    const int opened = pack->fd_.load(std::memory_order_relaxed);
    pack->keeps_pages_ = base::keeps_pages(opened);
    return pack;
  }
  why = file + " " + what;
  return nullptr;
}

PackReader::~PackReader() { base::UniqueFd(fd_.load(std::memory_order_relaxed)).reset(); }

void PackReader::keep_out_of_the_way() {
  fd_.store(base::raise_fd(base::UniqueFd(fd_.load(std::memory_order_relaxed))).release(),
            std::memory_order_relaxed);
}

base::Result<std::size_t> PackReader::read_bytes(void* to, std::size_t n, std::uint64_t at) const {
  return read_at(fd_.load(std::memory_order_relaxed), to, n, at);
}

// If the fd refers to another file, opens the pack again. True: the pack was opened again.
bool PackReader::revive() const {
  int lost = fd_.load(std::memory_order_relaxed);
  const auto here = stat_fd(lost);
  if (here && here->same_file(stat_)) return false;
  auto fd = base::open_fd(name_.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd) return false;
  const auto stat = stat_fd(fd->get());
  if (!stat || !stat->same_file(stat_) || stat->size != stat_.size) return false;
  base::UniqueFd high = base::raise_fd(std::move(*fd));
  // If another thread has reopened the pack first, its fd stays. The lost fd is not closed, because
  // its number belongs to the host program now.
  if (fd_.compare_exchange_strong(lost, high.get(), std::memory_order_relaxed)) high.release();
  return true;
}

template <typename Read>
auto PackReader::read_and_revive(Read&& read) const {
  auto result = read();
  if (result || result.error().value == ENOENT || !revive()) return result;
  return read();
}

bool PackReader::read_frame(std::string& why) {
  const auto stat = stat_fd(fd_.load(std::memory_order_relaxed), k_ask_server);
  const auto cannot_read = [&](int error) {
    why = fmt::format("cannot be read: {}", base::text_of_error(error));
    return false;
  };
  if (!stat) return cannot_read(stat.error().value);
  if (!stat->is_regular()) {
    why = "is not a pack: it is not a regular file";
    return false;
  }
  stat_ = *stat;
  changed_s_.store(stat_.changed.seconds, std::memory_order_relaxed);
  changed_ns_.store(stat_.changed.nanoseconds, std::memory_order_relaxed);
  const auto got = read_bytes(&header_, sizeof header_, 0);
  if (!got) return cannot_read(got.error().value);
  if (*got < sizeof header_ || header_.magic != PackHeader::k_magic) {
    why = *got >= sizeof(PackJournal) && header_.magic == PackJournal::k_magic
              ? "is an unfinished pack: the same cubeshim pack command continues it"
              : "is not a pack: it has no header of a pack";
    return false;
  }
  if (header_.version != k_pack_version) {
    why = fmt::format("is a pack of version {}; this cubeshim reads version {}", header_.version,
                      k_pack_version);
    return false;
  }
  if (header_.header_hash != hash_of(header_) || !is_consistent(header_)) {
    why = "is damaged: the checksum of its header is wrong";
    return false;
  }
  if (stat->size != header_.file_bytes) {
    why = fmt::format("is damaged: it has {} bytes and should have {}", stat->size,
                      header_.file_bytes);
    return false;
  }
  PackFooter footer{};
  const auto tail = read_bytes(&footer, sizeof footer, header_.file_bytes - sizeof footer);
  if (!tail) return cannot_read(tail.error().value);
  const PackFooter expected = footer_of(header_);
  if (*tail != sizeof footer || std::memcmp(&footer, &expected, sizeof footer) != 0) {
    why = "is damaged: its footer does not belong to its header";
    return false;
  }
  auto index = base::Mapping::private_view(fd_.load(std::memory_order_relaxed), header_.index_begin,
                                           header_.index_bytes);
  if (!index) {
    why = fmt::format("cannot be mapped: {}", base::text_of_error(index.error().value));
    return false;
  }
  // Disables readahead, because it would fetch pages that are not needed.
  base::sys::madvise(index->data(), index->size(), MADV_RANDOM);
  index_ = std::move(*index);
  table_ = reinterpret_cast<const std::uint64_t*>(index_.data());
  slots_ = reinterpret_cast<const PackSlot*>(index_.data() + pack_table_bytes(header_.table_bits));
  return true;
}

void PackReader::will_need(std::uint64_t at, std::uint64_t n) const {
  base::ask_for_pages(fd_.load(std::memory_order_relaxed), at, n);
}

void PackReader::will_need_index() const {
  if (!can_keep_index() || index_is_asked_for_.load(std::memory_order_relaxed)) return;
  if (index_is_asked_for_.exchange(true, std::memory_order_relaxed)) return;
  // Requests the index through the mapping, because the caller may be a thread with its own fd
  // table, where the fd is not valid.
  for (std::uint64_t at = 0; at < index_.size(); at += base::k_one_readahead)
    base::sys::madvise(index_.data() + at,
                       std::min<std::uint64_t>(base::k_one_readahead, index_.size() - at),
                       MADV_WILLNEED);
}

// Reads the index for one lookup. If the pack was truncated, a load from a missing page of the
// index would end the program. So the kernel is asked whether both ends of a value can be read
// before the value is read. For consecutive reads of the same page, the kernel is asked only once.
class PackReader::IndexLook {
 public:
  template <typename T>
  bool read(const T* at, T& to) {
    const auto first = reinterpret_cast<std::uintptr_t>(at);
    if (!can_read(first) || !can_read(first + sizeof to - sizeof(std::uint64_t))) return false;
    to = *at;
    return true;
  }

 private:
  bool can_read(std::uintptr_t at) {
    if (at / k_page == seen_) return true;
    seen_ = at / k_page;
    return base::can_read_around(at);
  }
  std::uintptr_t seen_ = 0;  // the last page found to be readable; no mapping has page 0
};

base::Result<PackSlot> PackReader::locate(std::uint64_t path_hash, std::uint64_t n) const {
  const std::uint64_t bucket = pack_bucket(path_hash, header_.table_bits);
  std::array<std::uint64_t, 2> ends{};
  IndexLook look;
  if (!look.read(reinterpret_cast<const std::array<std::uint64_t, 2>*>(table_ + bucket), ends))
    return base::fail(EBADMSG);
  const auto [begin, end] = ends;
  if (begin > end || end > header_.entries) return base::fail(EBADMSG);
  PackSlot found{};
  std::uint64_t at = begin;
  // Finds the first slot with this hash.
  for (std::uint64_t left = end - begin; left != 0;) {
    const std::uint64_t half = left / 2;
    if (!look.read(slots_ + at + half, found)) return base::fail(EBADMSG);
    const bool is_before = found.hash < path_hash;
    at += is_before ? half + 1 : 0;
    left = is_before ? left - half - 1 : half;
  }
  if (n >= end - at) return base::fail(ENOENT);
  if (!look.read(slots_ + at + n, found)) return base::fail(EBADMSG);
  if (found.hash != path_hash) return base::fail(ENOENT);
  const bool is_inside = found.offset >= header_.records_begin &&
                         found.offset < header_.records_end &&
                         found.offset % k_record_alignment == 0 && found.bytes >= sizeof(Record) &&
                         found.bytes <= header_.records_end - found.offset;
  if (!is_inside) return base::fail(EBADMSG);
  return found;
}

base::Result<PackEntry> PackReader::find(std::string_view path) const {
  return read_and_revive([&] { return find_once(path); });
}

base::Result<PackEntry> PackReader::find_once(std::string_view path) const {
  const std::uint64_t hash = base::hash_path(path);
  base::OffStack room;
  static_assert(base::OffStack::k_bytes >= k_most_pack_head);
  if (!room) return base::fail(ENOMEM);
  std::byte* const head = room.bytes();
  for (std::uint64_t n = 0;; ++n) {
    const auto slot = locate(hash, n);
    if (!slot) return base::fail(slot.error().value);
    const auto got =
        read_bytes(head, std::min<std::uint64_t>(k_most_pack_head, slot->bytes), slot->offset);
    if (!got) return base::fail(got.error().value);
    PackEntry entry;
    std::string_view there;
    if (!read_pack_head(head, *got, slot->offset, slot->offset + slot->bytes, entry, there) ||
        entry.bytes != slot->bytes)
      return base::fail(EBADMSG);
    if (there == path) return entry;
  }
}

base::Result<PackEntry> PackReader::read_record(const PackSlot& slot, std::string_view path,
                                                std::byte* to) const {
  return read_and_revive([&] { return read_record_once(slot, path, to); });
}

base::Result<PackEntry> PackReader::read_record_once(const PackSlot& slot, std::string_view path,
                                                     std::byte* to) const {
  const auto got = read_bytes(to, slot.bytes, slot.offset);
  if (!got) return base::fail(got.error().value);
  return check_record(slot, path, to, *got);
}

base::Result<PackEntry> PackReader::check_record(const PackSlot& slot, std::string_view path,
                                                 const std::byte* bytes, std::size_t got) {
  PackEntry entry;
  std::string_view there;
  if (got < slot.bytes ||
      !read_pack_head(bytes, slot.bytes, slot.offset, slot.offset + slot.bytes, entry, there))
    return base::fail(EBADMSG);
  if (entry.bytes != slot.bytes || !data_is_sound(*reinterpret_cast<const Record*>(bytes)))
    return base::fail(EBADMSG);
  if (there != path) return base::fail(ENOENT);
  return entry;
}

base::Result<std::size_t> PackReader::read_span(std::uint64_t at, std::size_t n,
                                                std::byte* to) const {
  if (at >= header_.records_end) return std::size_t{0};
  n = static_cast<std::size_t>(std::min<std::uint64_t>(n, header_.records_end - at));
  return read_and_revive([&]() -> base::Result<std::size_t> {
    const auto got = read_bytes(to, n, at);
    if (got && *got != n) return base::fail(EBADMSG);
    return got;
  });
}

base::Result<void> PackReader::read(const PackEntry& entry, std::byte* to) const {
  return read_and_revive([&] { return read_once(entry, to); });
}

base::Result<void> PackReader::read_once(const PackEntry& entry, std::byte* to) const {
  const auto got = read_bytes(to, entry.data_size, entry.data_offset);
  if (!got) return base::fail(got.error().value);
  if (*got != entry.data_size || base::hash_bytes(to, entry.data_size) != entry.data_hash)
    return base::fail(EBADMSG);
  return {};
}

base::Result<std::size_t> PackReader::read_part(const PackEntry& entry, std::uint64_t from,
                                                std::byte* to, std::size_t n) const {
  if (from >= entry.data_size) return std::size_t{0};
  n = static_cast<std::size_t>(std::min<std::uint64_t>(n, entry.data_size - from));
  const auto got = read_bytes(to, n, entry.data_offset + from);
  if (!got) return base::fail(got.error().value);
  if (*got != n) return base::fail(EBADMSG);
  return n;
}

bool PackReader::is_untouched() const {
  if (is_touched_.load(std::memory_order_relaxed)) return false;
  constexpr std::uint64_t k_interval_ns = 1'000'000'000;
  const std::uint64_t now_ns = base::boot_ns();
  const bool is_due = now_ns - looked_ns_.load(std::memory_order_relaxed) >= k_interval_ns;
  if (is_due) looked_ns_.store(now_ns, std::memory_order_relaxed);
  const int flags = AT_EMPTY_PATH | (is_due ? k_ask_server : AT_STATX_DONT_SYNC);
  auto now = stat_path(fd_.load(std::memory_order_relaxed), "", flags);
  if ((!now || !now->same_file(stat_)) && revive())
    now = stat_path(fd_.load(std::memory_order_relaxed), "", flags);
  // The host program has closed the fd, and the pack can no longer be opened. Returning true is
  // safe, because every record is checked.
  if (!now || !now->same_file(stat_)) return true;
  bool is_same = now->same_content(stat_);
  const bool is_seen = now->changed.seconds == changed_s_.load(std::memory_order_relaxed) &&
                       now->changed.nanoseconds == changed_ns_.load(std::memory_order_relaxed);
  if (is_same && !is_seen) {
    // Either the pack was renamed, or its rights were changed, or it was rewritten and its mtime
    // was set back.
    PackHeader header{};
    const auto got = read_bytes(&header, sizeof header, 0);
    is_same = got && *got == sizeof header && std::memcmp(&header, &header_, sizeof header) == 0;
    changed_s_.store(now->changed.seconds, std::memory_order_relaxed);
    changed_ns_.store(now->changed.nanoseconds, std::memory_order_relaxed);
  }
  if (!is_same) is_touched_.store(true, std::memory_order_relaxed);
  return is_same;
}

std::uint64_t PackReader::identity() const {
  const std::uint64_t what[] = {header_.header_hash, stat_.device(), stat_.inode,
                                static_cast<std::uint64_t>(stat_.modified.seconds),
                                stat_.modified.nanoseconds};
  return base::hash_bytes(what, sizeof what);
}

bool PackReader::index_is_sound() const {
  return base::hash_bytes(index_.data(), index_.size()) == header_.index_hash;
}

}  // namespace cube::cache
