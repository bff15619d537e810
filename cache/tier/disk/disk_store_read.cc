// DiskStore: finds, reads and forgets records.
#include <algorithm>
#include <cerrno>
#include <climits>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/log.h"
#include "cache/base/process/rlimit_fsize.h"
#include "cache/record/record_hash.h"
#include "cache/tier/disk/disk_store.h"

namespace cube::cache {

namespace sys = base::sys;

// The header and path of a record.
struct DiskStore::Head {
  alignas(Record) std::byte bytes[sizeof(Record) + PATH_MAX] = {};
  const Record& record() const { return *reinterpret_cast<const Record*>(bytes); }
};

// A head in a mapping of its own, because the stack of a signal handler may be small.
class DiskStore::MappedHead {
 public:
  MappedHead() : memory_(base::Mapping::anonymous(sizeof(Head))) {}
  // Call it once.
  bool read(const DiskStore& store, const DiskPlace& place) {
    return memory_ && store.read_head(place, *reinterpret_cast<Head*>(memory_->data()));
  }
  const Record& record() const { return reinterpret_cast<const Head*>(memory_->data())->record(); }

 private:
  base::Result<base::Mapping> memory_;
};

DiskPlaces DiskStore::find(std::uint64_t path_hash) const {
  DiskPlaces found;
  const auto is_newer = [](const DiskPlace& a, const DiskPlace& b) {
    return a.number != b.number ? a.number > b.number : a.offset > b.offset;
  };
  index_->visit(path_hash, [&](DiskPlace place, std::uint64_t word) {
    if ((word & DiskIndex::k_tentative) != 0) return;
    place.is_of_this_run =
        index_->row_of(place.number).job.load(std::memory_order_seq_cst) == options_.job;
    std::uint32_t at = found.count;
    while (at > 0 && is_newer(place, found.places[at - 1])) --at;
    if (at == found.places.size()) return;
    found.count =
        std::min<std::uint32_t>(found.count + 1, static_cast<std::uint32_t>(found.places.size()));
    for (std::uint32_t i = found.count - 1; i > at; --i) found.places[i] = found.places[i - 1];
    found.places[at] = place;
  });
  return found;
}

base::Result<std::size_t> DiskStore::read_bytes(const DiskPlace& place,
                                                std::span<std::byte> buffer) const {
  const auto begin = static_cast<std::int64_t>(place.offset / k_page * k_page);
  for (bool direct = options_.is_direct && !no_direct_.load(std::memory_order_relaxed);;
       direct = false) {
    const auto fd = directory_.open_segment(place.number, O_RDONLY | (direct ? O_DIRECT : 0));
    long n = fd ? 0 : -fd.error().value;
    if (fd) {
      do {
        n = sys::pread(fd->get(), buffer.data(), place.buffer_bytes(), begin);
      } while (n == -EINTR);
      // Removes the bytes from the page cache, because RAM will have the record.
      if (!direct)
        sys::raw(SYS_fadvise64, fd->get(), begin, static_cast<long>(place.buffer_bytes()),
                 POSIX_FADV_DONTNEED);
    }
    if (!sys::failed(n)) return static_cast<std::size_t>(n);
    if (!direct || n != -EINVAL) return base::fail(static_cast<int>(-n));
    // The file system does not support O_DIRECT.
    no_direct_.store(true, std::memory_order_relaxed);
  }
}

base::Result<const Record*> DiskStore::read(const DiskPlace& place, std::string_view path,
                                            std::span<std::byte> buffer) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(buffer.data()) % k_page == 0;
  if (!is_aligned || buffer.size() < place.buffer_bytes() || place.offset % k_record_alignment != 0)
    return base::fail(EINVAL);
  const auto got = read_bytes(place, buffer);
  if (!got) return base::fail(note_failed_read(place, path, got.error().value));
  const std::uint64_t lead = place.offset % k_page;
  auto record =
      check_record(place, path, buffer.first(std::max<std::size_t>(*got, lead)).subspan(lead));
  if (record) touch(place);
  return record;
}

base::Result<const Record*> DiskStore::check_record(const DiskPlace& place, std::string_view path,
                                                    std::span<const std::byte> bytes) {
  const auto& record = *reinterpret_cast<const Record*>(bytes.data());
  const bool has_header = header_is_sound(record, bytes.size()) && is_kept_on_disk(record.kind);
  if (has_header && record.path() != path) return base::fail(ENOENT);
  if (has_header && record.is_stale()) {
    remove(place, path);
    return base::fail(ENOENT);
  }
  if (has_header && data_is_sound(record)) return &record;
  remove(place, path);
  bad_records_.fetch_add(1, std::memory_order_relaxed);
  if (!reported_bad_.exchange(true, std::memory_order_relaxed)) {
    base::log(base::LogLevel::warn,
              "{}: a damaged record was found and dropped: segment {}, offset {}",
              directory_.path(), place.number, place.offset);
  }
  return base::fail(EBADMSG);
}

int DiskStore::note_failed_read(const DiskPlace& place, std::string_view path, int error) {
  // Only EIO means that the disk is broken. After other errors, the file was evicted, or this
  // process lacks fds or memory.
  if (error != EIO) return error;
  remove(place, path);
  io_errors_.fetch_add(1, std::memory_order_relaxed);
  if (!reported_error_.exchange(true, std::memory_order_relaxed)) {
    base::log(base::LogLevel::warn, "{}: cannot read segment {}: {}", directory_.path(),
              place.number, base::text_of_error(error));
  }
  return error;
}

base::Result<void> DiskStore::read_head(const DiskPlace& place, Head& head) const {
  const auto fd = directory_.open_segment(place.number, O_RDONLY);
  if (!fd) return base::fail(fd.error().value);
  long n = 0;
  do {
    n = sys::pread(fd->get(), head.bytes, sizeof head.bytes,
                   static_cast<std::int64_t>(place.offset));
  } while (n == -EINTR);
  if (sys::failed(n)) return base::fail(static_cast<int>(-n));
  // header_is_sound() can safely use any path_length, because the head has room for it: all bytes
  // were read or are zeros.
  if (!header_is_sound(head.record(), k_most_disk_segment_bytes) ||
      !is_kept_on_disk(head.record().kind))
    return base::fail(EBADMSG);
  return {};
}

// Whether the store has a record of this path with the same bytes and stat. Sets `replaces` if the
// store has another record of this path.
bool DiskStore::has_it(const Record& record, bool& replaces) const {
  bool found = false;
  index_->visit(base::hash_path(record.path()), [&](const DiskPlace& place, std::uint64_t word) {
    Head head;
    if (found || (word & DiskIndex::k_tentative) != 0 || !read_head(place, head)) return;
    const Record& there = head.record();
    if (there.path() != record.path()) return;
    found = !there.is_stale() && is_same_version(there.stat, record.stat) &&
            there.data_hash == record.data_hash && (!may_be_racy(there) || may_be_racy(record));
    replaces = true;
  });
  return found;
}

bool DiskStore::remove(const DiskPlace& place, std::string_view path) {
  if (!index_->remove(base::hash_path(path), place.number, place.offset)) return false;
  DiskSegmentRow& row = index_->row_of(place.number);
  if (DiskIndex::can_write(&row)) row.dropped.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void DiskStore::mark_dropped(const DiskPlace& place) const {
  if (is_private_ || place.offset + sizeof(Record) > base::file_size_limit()) return;
  const auto fd = directory_.open_segment(place.number, O_WRONLY);
  if (!fd) return;
  const std::uint32_t mark = k_disk_dropped;
  sys::pwrite(fd->get(), &mark, sizeof mark,
              static_cast<std::int64_t>(place.offset + offsetof(Record, stale)));
}

void DiskStore::touch(const DiskPlace& place) const {
  DiskSegmentRow& row = index_->row_of(place.number);
  // The index may have been truncated since find().
  if (!DiskIndex::can_read(&row) || row.number() != place.number ||
      row.touched_job.load(std::memory_order_relaxed) == options_.job ||
      !DiskIndex::can_write(&row))
    return;
  row.touched_job.store(options_.job, std::memory_order_relaxed);
  row.touched_s.store(static_cast<std::uint32_t>(base::read_clock(CLOCK_REALTIME).tv_sec),
                      std::memory_order_relaxed);
  // Stores the time as the file's mtime, so that it survives a restart.
  if (!is_private_)
    sys::raw(SYS_utimensat, AT_FDCWD, sys::arg(directory_.path_of_segment(place.number).text), 0,
             0);
}

std::size_t DiskStore::forget(std::string_view path) {
  std::size_t count = 0;
  index_->visit(base::hash_path(path), [&](const DiskPlace& place, std::uint64_t) {
    MappedHead head;
    const bool read = head.read(*this, place);
    if (read && head.record().path() != path) return;
    // Removes a record that cannot be read, too, because it may belong to this path.
    if (remove(place, path)) ++count;
    if (read) mark_dropped(place);
  });
  return count;
}

std::size_t DiskStore::forget_inode(std::uint64_t device, std::uint64_t inode) {
  std::size_t count = 0;
  const std::uint64_t hash = base::hash_inode(device, inode);
  index_->visit(hash, [&](const DiskPlace& place, std::uint64_t) {
    MappedHead head;
    if (!head.read(*this, place)) return;
    const Record& record = head.record();
    if (record.stat.inode != inode || record.stat.device() != device) return;
    if (remove(place, record.path())) ++count;
    mark_dropped(place);
    index_->remove(hash, place.number, place.offset);
  });
  return count;
}

bool DiskStore::drop(const DiskPlace& place, std::string_view path) {
  MappedHead head;
  const bool read = head.read(*this, place);
  if (read && head.record().path() != path) return false;
  const bool removed = remove(place, path);
  if (read) mark_dropped(place);
  return removed;
}

}  // namespace cube::cache
