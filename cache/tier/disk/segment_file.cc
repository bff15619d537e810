#include "cache/tier/disk/segment_file.h"

#include <sys/file.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/file_io.h"
#include "cache/base/process/rlimit_fsize.h"
#include "cache/record/record_hash.h"

namespace cube::cache {

namespace sys = base::sys;

namespace {

struct FreeAligned {
  void operator()(std::byte* bytes) const {
    operator delete[](bytes, std::align_val_t{k_record_alignment});
  }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;

AlignedBytes allocate(std::uint64_t bytes) {
  return AlignedBytes(new (std::align_val_t{k_record_alignment}, std::nothrow) std::byte[bytes]);
}

// Reads the size, the times and the header of the file. Both read_footer and walk_records begin
// with this step.
base::Result<SegmentContents> begin_reading(int fd, std::uint32_t number) {
  SegmentContents contents;
  struct ::stat st {};
  if (const long error = sys::fstat(fd, &st); sys::failed(error))
    return base::fail(static_cast<int>(-error));
  if (!S_ISREG(st.st_mode) || st.st_size < static_cast<std::int64_t>(k_disk_header_bytes))
    return base::fail(EBADMSG);
  contents.file_bytes = static_cast<std::uint64_t>(st.st_size);
  contents.changed_s = static_cast<std::uint32_t>(st.st_mtim.tv_sec);
  if (const auto read = read_fully(fd, &contents.header, sizeof contents.header, 0); !read)
    return base::fail(read.error().value);
  if (!is_sound(contents.header, number)) return base::fail(EBADMSG);
  return contents;
}

// A part of a file in memory. The window moves forward through the file.
class ReadWindow {
 public:
  ReadWindow(int fd, std::uint64_t file_bytes) : fd_(fd), file_bytes_(file_bytes) {}
  // Returns the `bytes` bytes at offset `at`. Null: the file ends too early or cannot be read, or
  // there is no memory (see error()).
  const std::byte* at(std::uint64_t at, std::uint64_t bytes) {
    if (at > file_bytes_ || bytes > file_bytes_ - at) return nullptr;
    if (at >= begin_ && at + bytes <= end_) return bytes_.get() + (at - begin_);
    const std::uint64_t wanted =
        std::min(std::max<std::uint64_t>(bytes, 1 << 20), file_bytes_ - at);
    if (wanted > capacity_) {
      bytes_ = allocate(wanted);
      capacity_ = bytes_ == nullptr ? 0 : wanted;
    }
    begin_ = end_ = 0;
    if (bytes_ == nullptr) return stop(ENOMEM);
    if (const auto read = read_fully(fd_, bytes_.get(), wanted, at); !read)
      return stop(read.error().value);
    begin_ = at;
    end_ = at + wanted;
    return bytes_.get();
  }
  // Returns how many bytes of the window lie at or after `at`.
  std::uint64_t left(std::uint64_t at) const { return end_ - at; }
  int error() const { return error_; }

 private:
  const std::byte* stop(int error) {
    error_ = error;
    return nullptr;
  }
  int fd_, error_ = 0;
  std::uint64_t file_bytes_, begin_ = 0, end_ = 0, capacity_ = 0;
  AlignedBytes bytes_;
};

}  // namespace

base::Result<void> read_fully(int fd, void* to, std::uint64_t bytes, std::uint64_t at) {
  const auto got = base::read_at(fd, to, bytes, at);
  if (!got) return base::fail(got.error().value);
  return *got == bytes ? base::Result<void>() : base::fail(EIO);
}

base::Result<SegmentContents> read_footer(int fd, std::uint32_t number) {
  auto contents = begin_reading(fd, number);
  if (!contents) return contents;
  DiskTrailer trailer{};
  if (contents->file_bytes < k_disk_header_bytes + sizeof trailer) return base::fail(EBADMSG);
  if (const auto read =
          read_fully(fd, &trailer, sizeof trailer, contents->file_bytes - sizeof trailer);
      !read)
    return base::fail(read.error().value);
  if (!is_sound(trailer, number, contents->file_bytes)) return base::fail(EBADMSG);
  contents->data_end = trailer.data_end;
  contents->rows.resize(trailer.row_count);
  const std::uint64_t bytes = trailer.row_count * sizeof(DiskFooterRow);
  if (const auto read = read_fully(fd, contents->rows.data(), bytes, trailer.rows_at); !read)
    return base::fail(read.error().value);
  const bool sound =
      base::hash_bytes(contents->rows.data(), bytes) == trailer.rows_hash &&
      std::all_of(contents->rows.begin(), contents->rows.end(),
                  [&](const DiskFooterRow& row) { return is_within(row, trailer.data_end); });
  if (!sound) return base::fail(EBADMSG);
  contents->has_footer = true;
  return contents;
}

void will_need_footer(const DiskDirectory& directory, std::uint32_t number) {
  // Enough for some thousand rows.
  constexpr std::int64_t k_usual_footer = 128 << 10;
  const auto fd = directory.open_segment(number, O_RDONLY);
  struct ::stat st {};
  if (!fd || sys::failed(sys::fstat(fd->get(), &st))) return;
  const std::int64_t at = std::max<std::int64_t>(st.st_size - k_usual_footer, 0);
  sys::raw(SYS_fadvise64, fd->get(), at, st.st_size - at, POSIX_FADV_WILLNEED);
  sys::raw(SYS_fadvise64, fd->get(), 0, k_page, POSIX_FADV_WILLNEED);
}

base::Result<SegmentContents> walk_records(int fd, std::uint32_t number) {
  auto contents = begin_reading(fd, number);
  if (!contents) return contents;
  const std::uint64_t end = std::min(contents->file_bytes, k_most_disk_segment_bytes);
  ReadWindow window(fd, end);
  std::uint64_t at = k_disk_header_bytes;
  while (const std::byte* const head = window.at(at, sizeof(Record))) {
    const std::uint64_t bytes = reinterpret_cast<const Record*>(head)->record_size;
    // The size is trusted only after the hash of the header has matched. Before that, this only
    // checks that the record lies inside the file.
    if (bytes < sizeof(Record) || bytes % k_record_alignment != 0) break;
    const std::byte* const whole = window.at(at, bytes);
    if (whole == nullptr) break;
    const auto& record = *reinterpret_cast<const Record*>(whole);
    if (!header_is_sound(record, bytes) || !data_is_sound(record)) break;
    if (is_kept_on_disk(record.kind) && !record.is_stale())
      contents->rows.push_back(footer_row(record, at));
    at += bytes;
  }
  // After a failed read, further records may exist.
  if (window.error() != 0) return base::fail(window.error());
  contents->data_end = at;
  return contents;
}

base::Result<std::uint64_t> write_footer(int fd, std::uint32_t number, std::uint64_t data_end,
                                         std::span<const DiskFooterRow> rows, bool durable) {
  DiskTrailer trailer{};
  trailer.magic = DiskTrailer::k_magic;
  trailer.version = k_disk_version;
  trailer.number = number;
  trailer.data_end = data_end;
  trailer.rows_at = base::round_up(data_end, k_page);
  trailer.row_count = rows.size();
  trailer.rows_hash = base::hash_bytes(rows.data(), rows.size_bytes());
  trailer.hash = hash_of(trailer);
  const std::uint64_t at = trailer_offset(trailer.rows_at, rows.size());
  if (at + sizeof trailer > base::file_size_limit()) return base::fail(EFBIG);
  auto written = base::write_at(fd, rows.data(), rows.size_bytes(), trailer.rows_at);
  if (written) written = base::write_at(fd, &trailer, sizeof trailer, at);
  if (!written) return base::fail(written.error().value);
  const std::uint64_t file_bytes = at + sizeof trailer;
  // Truncates the file after the trailer, because a restart looks for the trailer at the end of the
  // file.
  if (const long e = sys::ftruncate(fd, static_cast<std::int64_t>(file_bytes)); sys::failed(e))
    return base::fail(static_cast<int>(-e));
  if (durable) {
    if (const long e = sys::raw(SYS_fdatasync, fd); sys::failed(e))
      return base::fail(static_cast<int>(-e));
    // Removes the file from the page cache, where it is not needed.
    sys::raw(SYS_fadvise64, fd, 0, 0, POSIX_FADV_DONTNEED);
  }
  return file_bytes;
}

base::Result<SegmentWriter> SegmentWriter::create(const DiskDirectory& directory,
                                                  std::uint32_t number, std::uint64_t file_bytes,
                                                  std::uint64_t job) {
  if (file_bytes > base::file_size_limit()) return base::fail(EFBIG);
  const auto fd = directory.open_segment(number, O_RDWR | O_CREAT | O_EXCL);
  if (!fd) return base::fail(fd.error().value);
  const auto give_up = [&](int error) {
    sys::unlink(directory.path_of_segment(number).text);
    return base::fail(error);
  };
  if (!try_lock(fd->get(), LOCK_EX)) return give_up(EBUSY);
  // If the file system cannot reserve room, continues: a full disk is then noticed only at a write.
  const long reserved = sys::fallocate(fd->get(), 0, 0, static_cast<std::int64_t>(file_bytes));
  if (sys::failed(reserved) && reserved != -EOPNOTSUPP && reserved != -ENOSYS)
    return give_up(static_cast<int>(-reserved));
  DiskHeader header{};
  header.magic = DiskHeader::k_magic;
  header.version = k_disk_version;
  header.number = number;
  header.job = job;
  header.created_ns = base::wall_ns();
  header.hash = hash_of(header);
  alignas(DiskHeader) std::byte page[k_disk_header_bytes] = {};
  *reinterpret_cast<DiskHeader*>(page) = header;
  if (const auto written = base::write_at(fd->get(), page, sizeof page, 0); !written)
    return give_up(written.error().value);
  SegmentWriter writer;
  auto mapping = base::Mapping::shared(fd->get(), 0, k_page, PROT_NONE);
  if (!mapping) return give_up(mapping.error().value);
  // A forked child must not inherit the mapping, because it would keep the lock after this process
  // has ended.
  sys::madvise(mapping->data(), mapping->size(), MADV_DONTFORK);
  struct ::stat st {};
  sys::fstat(fd->get(), &st);
  writer.lock_ = std::move(*mapping);
  writer.number_ = number;
  writer.file_bytes_ = file_bytes;
  writer.device_ = st.st_dev;
  writer.inode_ = st.st_ino;
  return writer;
}

base::Result<base::UniqueFd> SegmentWriter::reopen(const DiskDirectory& directory) const {
  auto fd = directory.open_segment(number_, O_RDWR);
  if (!fd) return fd;
  struct ::stat st {};
  if (sys::failed(sys::fstat(fd->get(), &st)) || st.st_dev != device_ || st.st_ino != inode_)
    return base::fail(ESTALE);
  return fd;
}

base::Result<void> SegmentWriter::append(const DiskDirectory& directory, std::span<iovec> parts) {
  constexpr std::size_t k_most_parts = 1024;  // IOV_MAX
  const auto fd = reopen(directory);
  if (!fd) return base::fail(fd.error().value);
  if (file_bytes_ > base::file_size_limit()) return base::fail(EFBIG);
  std::uint64_t at = data_end_;
  while (!parts.empty()) {
    const long n =
        sys::raw(SYS_pwritev, fd->get(), sys::arg(parts.data()),
                 static_cast<long>(std::min(parts.size(), k_most_parts)), static_cast<long>(at), 0);
    if (n == -EINTR) continue;
    if (n <= 0) return base::fail(n == 0 ? EIO : static_cast<int>(-n));
    at += static_cast<std::uint64_t>(n);
    for (auto left = static_cast<std::size_t>(n); left > 0;) {
      iovec& part = parts.front();
      const std::size_t taken = std::min(left, part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
      if (part.iov_len == 0) parts = parts.subspan(1);
    }
  }
  // Starts the write to the disk while further records are appended.
  sys::raw(SYS_sync_file_range, fd->get(), static_cast<long>(data_end_),
           static_cast<long>(at - data_end_), SYNC_FILE_RANGE_WRITE);
  data_end_ = at;
  return {};
}

base::Result<std::uint64_t> SegmentWriter::seal(const DiskDirectory& directory, bool durable) {
  const auto fd = reopen(directory);
  if (!fd) return base::fail(fd.error().value);
  return write_footer(fd->get(), number_, data_end_, rows_, durable);
}

}  // namespace cube::cache
