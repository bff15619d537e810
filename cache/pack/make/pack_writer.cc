#include "cache/pack/make/pack_writer.h"

#include <sys/file.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cache/pack/pack_io.h"

namespace cube::cache {

namespace sys = base::sys;

namespace {

constexpr std::size_t k_buffer = k_pack_segment;

base::Result<void> done(long result) {
  if (sys::failed(result)) return base::fail(static_cast<int>(-result));
  return {};
}

void write_head(std::byte* at, const RecordPlan& plan, const PackWriter::PackContent& content,
                const RecordData& data) {
  write_record_head(
      at, plan,
      {.kind = content.kind, .path = content.path, .stat = content.stat, .physical = true}, data);
  // Clears the mark "unconfirmed", because records of a pack are never confirmed.
  reinterpret_cast<Record*>(at)->stale.store(0, std::memory_order_relaxed);
}

// Syncs the directory of a file, so that a rename of the file is safe on the disk.
base::Result<void> sync_directory_of(const std::string& file) {
  const auto fd = base::open_fd(directory_of(file).c_str(), O_RDONLY | O_DIRECTORY);
  // Ignores EACCES: the directory may be writable but not readable, and the pack already has its
  // name.
  if (!fd) return fd.error().value == EACCES ? base::Result<void>{} : base::fail(fd.error().value);
  const long synced = sys::fsync(fd->get());
  // Not every mount supports fsync of directories.
  return synced == -EINVAL || synced == -ENOSYS || synced == -EOPNOTSUPP ? base::Result<void>{}
                                                                         : done(synced);
}

}  // namespace

base::Result<std::unique_ptr<PackWriter>> PackWriter::open(const PackWriterOptions& options) {
  std::unique_ptr<PackWriter> writer(new PackWriter(options));
  const auto opened = writer->lock_and_look();
  if (!opened) return base::fail(opened.error().value);
  writer->buffer_ = std::make_unique<std::byte[]>(k_buffer);
  return writer;
}

base::Result<void> PackWriter::lock_and_look() {
  auto fd = base::open_fd(partial_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0644);
  if (!fd) return base::fail(fd.error().value);
  fd_ = std::move(*fd);
  // If the mount does not support locks, continues without a lock.
  if (sys::flock(fd_.get(), LOCK_EX | LOCK_NB) == -EWOULDBLOCK) return base::fail(EWOULDBLOCK);
  const auto held = stat_fd(fd_.get()),
             named = stat_path(AT_FDCWD, partial_.c_str(), AT_SYMLINK_NOFOLLOW);
  if (!held) return base::fail(held.error().value);
  // If the path now names another file or none, another writer has finished and renamed this file
  // between the open and the lock.
  if (!named || !named->same_file(*held)) return base::fail(EWOULDBLOCK);
  if (!held->is_regular()) return base::fail(EINVAL);
  file_end_ = held->size;
  PackJournal journal{};
  const auto got = read_at(fd_.get(), &journal, sizeof journal, 0);
  if (!got) return base::fail(got.error().value);
  const bool is_ours = *got == sizeof journal && journal.magic == PackJournal::k_magic &&
                       journal.version == k_pack_version && journal.hash == hash_of(journal) &&
                       journal.arguments_hash == arguments_hash_ &&
                       file_end_ > k_pack_records_begin;
  if (!is_ours) {
    const auto cleared = cut(0);
    if (!cleared) return cleared;
    return write_journal(k_pack_records_begin);
  }
  safe_end_ = std::clamp(journal.safe_end, k_pack_records_begin, file_end_);
  old_scan_ = std::make_unique<PackScan>(fd_.get(), k_pack_records_begin, file_end_);
  return {};
}

base::Result<void> PackWriter::write_journal(std::uint64_t safe_end) {
  PackJournal journal{.magic = PackJournal::k_magic,
                      .version = k_pack_version,
                      .reserved = 0,
                      .arguments_hash = arguments_hash_,
                      .safe_end = safe_end,
                      .hash = 0};
  journal.hash = hash_of(journal);
  safe_end_ = safe_end;
  file_end_ = std::max<std::uint64_t>(file_end_, sizeof journal);
  return write_at(fd_.get(), &journal, sizeof journal, 0);
}

base::Result<void> PackWriter::end_safety_at(std::uint64_t end) {
  if (safe_end_ <= end) return {};
  const auto noted = write_journal(end);
  return noted ? done(sys::fdatasync(fd_.get())) : noted;
}

base::Result<void> PackWriter::cut(std::uint64_t end) {
  old_scan_.reset();
  old_.clear();
  if (file_end_ <= end) return {};
  if (end >= k_pack_records_begin) {
    const auto noted = end_safety_at(end);
    if (!noted) return noted;
  }
  file_end_ = end;
  return done(sys::ftruncate(fd_.get(), static_cast<std::int64_t>(end)));
}

const OldRecord* PackWriter::old(std::size_t n) {
  while (old_.size() <= n && old_scan_ != nullptr) {
    PackEntry entry;
    std::string_view path;
    if (old_scan_->next(entry, path) != PackScan::Next::record) {
      old_scan_.reset();
      break;
    }
    old_.push_back({entry, std::string(path)});
  }
  return n < old_.size() ? &old_[n] : nullptr;
}

base::Result<bool> PackWriter::data_is_as_written(const PackEntry& entry) {
  base::Hasher hasher;
  constexpr std::size_t k_part = 1 << 20;
  const auto part = std::make_unique<std::byte[]>(std::min<std::uint64_t>(k_part, entry.data_size));
  for (std::uint64_t at = 0; at < entry.data_size;) {
    const std::size_t n = std::min<std::uint64_t>(k_part, entry.data_size - at);
    const auto got = read_at(fd_.get(), part.get(), n, entry.data_offset + at);
    if (!got) return base::fail(got.error().value);
    if (*got != n) return false;
    hasher.add(part.get(), n);
    at += n;
  }
  return hasher.value() == entry.data_hash;
}

base::Result<bool> PackWriter::adopt() {
  const OldRecord* const first = old();
  if (first == nullptr) return false;
  if (first->entry.end() > safe_end_) {
    const auto is_sound = data_is_as_written(first->entry);
    if (!is_sound || !*is_sound) return is_sound;
  }
  const auto flushed = flush();
  if (!flushed) return base::fail(flushed.error().value);
  const OldRecord taken = std::move(old_.front());
  old_.pop_front();
  fill_ = buffer_at_ = taken.entry.end();
  const auto noted = note_added(
      {.path = taken.path, .kind = taken.entry.kind, .stat = taken.entry.stat},
      {base::hash_path(taken.path), taken.entry.offset, taken.entry.bytes}, taken.entry.data_size);
  if (!noted) return base::fail(noted.error().value);
  return true;
}

// Returns the place of the next record. The file contains zeros there, or an old record that is
// being replaced.
base::Result<RecordPlan> PackWriter::place(const PackContent& content, std::uint64_t size) {
  const RecordPlan plan = place_record_in_pack(fill_, content.path.size(), size);
  if (const OldRecord* const first = old(); first != nullptr) {
    const bool takes_its_place = first->path == content.path && first->entry.offset == plan.start &&
                                 first->entry.end() == plan.end;
    if (takes_its_place) {
      old_.pop_front();
      return plan;
    }
  }
  if (file_end_ > fill_) {
    const auto flushed = flush();
    if (!flushed) return base::fail(flushed.error().value);
    const auto cleared = cut(fill_);
    if (!cleared) return base::fail(cleared.error().value);
  }
  return plan;
}

base::Result<void> PackWriter::flush() {
  const std::uint64_t bytes = fill_ - buffer_at_;
  if (bytes == 0) return {};
  const auto noted = end_safety_at(buffer_at_);
  if (!noted) return noted;
  const auto written = write_at(fd_.get(), buffer_.get(), bytes, buffer_at_);
  if (!written) return written;
  buffer_at_ = fill_;
  file_end_ = std::max(file_end_, fill_);
  return {};
}

base::Result<void> PackWriter::note_added(const PackContent& content, const PackSlot& slot,
                                          std::uint64_t size) {
  ++header_.entries;
  ++(content.kind == RecordKind::file   ? header_.files
     : content.kind == RecordKind::link ? header_.links
                                        : header_.directories);
  if (content.kind == RecordKind::file) header_.data_bytes += size;
  if (fill_ > safe_end_ + k_between_syncs) {
    const auto safe = pause();
    if (!safe) return safe;
  }
  return slots_.add(slot);
}

base::Result<void> PackWriter::pause() {
  auto result = flush();
  if (!result) return result;
  result = done(sys::fdatasync(fd_.get()));
  return result ? write_journal(std::max(fill_, safe_end_)) : result;
}

base::Result<void> PackWriter::add(const PackContent& content, std::span<const std::byte> data) {
  const RecordPlan plan = place_record_in_pack(fill_, content.path.size(), data.size());
  if (plan.end - plan.start > k_buffer) {
    std::size_t given = 0;
    return add_streamed(content, data.size(),
                        [&](std::byte* to, std::size_t n) -> base::Result<std::size_t> {
                          n = std::min(n, data.size() - given);
                          std::memcpy(to, data.data() + given, n);
                          given += n;
                          return n;
                        });
  }
  const auto placed = place(content, data.size());
  if (!placed) return base::fail(placed.error().value);
  if (plan.end - buffer_at_ > k_buffer) {
    const auto flushed = flush();
    if (!flushed) return flushed;
    // The skipped bytes are already zeros in the file.
    buffer_at_ = plan.start;
    fill_ = plan.start;
  }
  const auto buffered = [&](std::uint64_t offset) { return buffer_.get() + (offset - buffer_at_); };
  std::memset(buffered(fill_), 0, plan.start - fill_);
  if (!data.empty()) std::memcpy(buffered(plan.data), data.data(), data.size());
  std::memset(buffered(plan.data + data.size()), 0, plan.end - plan.data - data.size());
  write_head(buffered(plan.start), plan, content,
             {.size = data.size(), .hash = base::hash_bytes(data.data(), data.size())});
  fill_ = plan.end;
  return note_added(content, {base::hash_path(content.path), plan.start, plan.end - plan.start},
                    data.size());
}

base::Result<void> PackWriter::add_streamed(const PackContent& content, std::uint64_t size,
                                            const Source& source) {
  has_failed_in_source_ = false;
  const auto plan = place(content, size);
  if (!plan) return base::fail(plan.error().value);
  auto result = flush();
  if (!result) return result;
  result = end_safety_at(fill_);
  if (!result) return result;
  file_end_ = std::max(file_end_, plan->end);
  base::Hasher hasher;
  // Always asks for a full buffer, even beyond the expected size, to detect a source that has
  // grown.
  for (std::uint64_t at = 0;;) {
    const auto got = source(buffer_.get(), k_buffer);
    const bool is_other = got && (at + *got > size || (*got < k_buffer && at + *got != size));
    if (!got || is_other) {
      result = cut(fill_);
      if (!result) return result;
      has_failed_in_source_ = true;
      return base::fail(got ? ESTALE : got.error().value);
    }
    hasher.add(buffer_.get(), *got);
    result = write_at(fd_.get(), buffer_.get(), *got, plan->data + at);
    if (!result) return result;
    at += *got;
    if (*got < k_buffer) break;
  }
  std::memset(buffer_.get(), 0, k_page);
  result = write_at(fd_.get(), buffer_.get(), plan->end - plan->data - size, plan->data + size);
  if (!result) return result;
  write_head(buffer_.get(), *plan, content, {.size = size, .hash = hasher.value()});
  result = write_at(fd_.get(), buffer_.get(), plan->data - plan->start, plan->start);
  if (!result) return result;
  fill_ = buffer_at_ = plan->end;
  return note_added(content, {base::hash_path(content.path), plan->start, plan->end - plan->start},
                    size);
}

base::Result<void> PackWriter::write_index(std::span<const PackSlot> slots) {
  constexpr std::size_t k_numbers = 64 << 10;
  std::vector<std::uint64_t> numbers;
  numbers.reserve(k_numbers);
  base::Hasher hasher;
  std::uint64_t at = header_.index_begin;
  const auto put = [&](const void* from, std::size_t n) -> base::Result<void> {
    hasher.add(from, n);
    const auto written = write_at(fd_.get(), from, n, at);
    at += n;
    return written;
  };
  std::uint64_t next = 0;
  for (std::uint64_t bucket = 0; bucket <= 1ULL << header_.table_bits; ++bucket) {
    while (next < slots.size() && pack_bucket(slots[next].hash, header_.table_bits) < bucket)
      ++next;
    numbers.push_back(next);
    if (numbers.size() < k_numbers) continue;
    const auto written = put(numbers.data(), numbers.size() * sizeof numbers[0]);
    if (!written) return written;
    numbers.clear();
  }
  auto written = put(numbers.data(), numbers.size() * sizeof numbers[0]);
  constexpr std::size_t k_slots = 128 << 10;
  for (std::size_t i = 0; written && i < slots.size(); i += k_slots) {
    const auto part = slots.subspan(i, std::min(k_slots, slots.size() - i));
    written = put(part.data(), part.size_bytes());
  }
  header_.index_hash = hasher.value();
  return written;
}

base::Result<void> PackWriter::finish() {
  auto result = flush();
  if (!result) return result;
  result = cut(fill_);
  if (!result) return result;
  header_.magic = PackHeader::k_magic;
  header_.version = k_pack_version;
  header_.segment_bytes = k_pack_segment;
  header_.records_begin = k_pack_records_begin;
  header_.records_end = fill_;
  header_.table_bits = pack_table_bits(header_.entries);
  header_.index_begin = (fill_ + k_page - 1) / k_page * k_page;
  header_.index_bytes = pack_table_bytes(header_.table_bits) + header_.entries * sizeof(PackSlot);
  header_.file_bytes = header_.index_begin + header_.index_bytes + sizeof(PackFooter);
  const auto slots = slots_.sorted();
  if (!slots) return base::fail(slots.error().value);
  result = write_index(*slots);
  if (!result) return result;
  header_.header_hash = hash_of(header_);
  const PackFooter footer = footer_of(header_);
  result = write_at(fd_.get(), &footer, sizeof footer, header_.file_bytes - sizeof footer);
  if (result) result = done(sys::fsync(fd_.get()));
  if (!result) return result;
  // Writes the header last, so that a file with a header is complete.
  std::memset(buffer_.get(), 0, k_page);
  std::memcpy(buffer_.get(), &header_, sizeof header_);
  result = write_at(fd_.get(), buffer_.get(), k_page, 0);
  if (result) result = done(sys::fsync(fd_.get()));
  if (result) result = done(sys::rename(partial_.c_str(), name_.c_str()));
  return result ? sync_directory_of(name_) : result;
}

}  // namespace cube::cache
