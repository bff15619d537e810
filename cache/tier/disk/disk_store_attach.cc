// DiskStore: attaches to a directory. Chooses the sizes, and makes the index agree with the
// existing segment files.
#include <fmt/core.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cache/base/error_text.h"
#include "cache/base/log.h"
#include "cache/tier/disk/disk_store.h"

namespace cube::cache {

namespace sys = base::sys;

namespace {

constexpr std::uint64_t k_least_bound = std::uint64_t{4} << 20;
// If the options do not specify a number of files, the first table is large enough for files of
// this size. With smaller files, further tables are added.
constexpr std::uint64_t k_usual_file = 32 << 10;
// The longest wait of the program's first open while another process rebuilds the index, which may
// have tens of millions of entries.
constexpr long k_wait_for_rebuild_ms = 5'000;
constexpr std::uint64_t k_segment_for_blocks = 8 << 20;
constexpr std::size_t k_ahead = 16, k_files_ahead = 32;

std::uint32_t pages_of(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes + k_page - 1) / k_page);
}

bool cannot_be_written(int error) { return error == EROFS || error == EACCES || error == EPERM; }

std::uint64_t word_of(std::uint64_t hash, std::uint32_t number, const DiskFooterRow& row) {
  return DiskIndex::word_of(hash, number, std::uint64_t{row.offset} * k_record_alignment,
                            std::uint64_t{row.size} * k_record_alignment);
}

std::uint64_t bytes_of_segments(const DiskDirectory& directory,
                                const std::vector<std::uint32_t>& numbers) {
  std::uint64_t bytes = 0;
  for (const std::uint32_t number : numbers) {
    struct ::stat st {};
    if (!sys::failed(sys::fstatat(AT_FDCWD, directory.path_of_segment(number).text, &st,
                                  AT_SYMLINK_NOFOLLOW)))
      bytes += static_cast<std::uint64_t>(st.st_size);
  }
  return bytes;
}

}  // namespace

base::Result<void> DiskStore::attach(std::string& why) {
  if (options_.is_read_only) return attach_private(why);
  const auto attached = attach_shared(why);
  if (attached || !cannot_be_written(attached.error().value)) return attached;
  base::log(base::LogLevel::info,
            "{} cannot be written to: what it holds is used, and nothing is added",
            directory_.path());
  why.clear();
  return attach_private(why);
}

base::Result<void> DiskStore::choose_sizes(std::string& why) {
  bound_ = options_.size_bound;
  if (bound_ == 0) {
    const auto room = directory_.room();
    const auto numbers = directory_.list_segments();
    if (!room || !numbers) return base::fail(EIO);
    const std::uint64_t used = bytes_of_segments(directory_, *numbers);
    const std::uint64_t kept = room->total / 100 * options_.keep_free_percent;
    bound_ = used + (room->available > kept ? room->available - kept : 0);
    bound_ = bound_ / 100 * options_.size_percent;
  }
  if (bound_ < k_least_bound) {
    why = fmt::format("CUBESHIM_DISK allows {} KiB in {}, at least {} KiB are needed", bound_ >> 10,
                      directory_.path(), k_least_bound >> 10);
    return base::fail(ENOSPC);
  }
  // A segment file must have room for a block of a large file (up to 2 MiB), because a record lies
  // in one segment file.
  const std::uint64_t usual = std::max(bound_ / 64, std::min(bound_ / 16, k_segment_for_blocks));
  const std::uint64_t wanted = options_.segment_bytes != 0 ? options_.segment_bytes : usual;
  segment_bytes_ = std::clamp(std::min(wanted, bound_ / 4), k_least_disk_segment_bytes,
                              k_most_disk_segment_bytes) /
                   k_page * k_page;
  return {};
}

DiskGeometry DiskStore::wanted_geometry() const {
  const std::uint64_t files =
      options_.expected_files != 0 ? options_.expected_files : bound_ / k_usual_file;
  // Allows for more segment files, because files that were sealed at the end of a job may be short.
  return DiskGeometry::of(files, 4 * (bound_ / segment_bytes_ + 1));
}

base::Result<void> DiskStore::attach_shared(std::string& why) {
  const auto fail_with = [&](int error) {
    if (why.empty())
      why = fmt::format("cannot use {}: {}", directory_.path(), base::text_of_error(error));
    return base::fail(error);
  };
  if (const auto chosen = choose_sizes(why); !chosen) return fail_with(chosen.error().value);
  const auto lock = directory_.lock(k_wait_for_rebuild_ms);
  if (!lock) return fail_with(lock.error().value);
  const DiskGeometry wanted = wanted_geometry();
  const std::uint64_t boot = DiskIndex::current_boot();
  auto found = DiskIndex::open(directory_.path_of(index_name_).text, boot);
  if (!found && cannot_be_written(found.error().value)) return fail_with(found.error().value);
  // An index of another size may fit, because the bound may depend on the free room of the disk.
  const auto fits = [&](const DiskGeometry& g) {
    return g.row_count >= wanted.row_count && g.bucket_count[0] <= 2 * wanted.bucket_count[0] &&
           2 * g.bucket_count[0] >= wanted.bucket_count[0];
  };
  base::Result<void> ready;
  if (found && (found->is_shared() || fits(found->geometry()))) {
    index_ = std::make_unique<DiskIndex>(std::move(*found));
    ready = reconcile(nullptr);
  } else {
    ready = rebuild(wanted, boot);
  }
  if (!ready) return fail_with(ready.error().value);
  // Makes room, because the bound may be lower, or the disk fuller, than at the last start. If this
  // fails, append() will add nothing, and will report it.
  static_cast<void>(make_room(0));
  return {};
}

base::Result<void> DiskStore::rebuild(const DiskGeometry& geometry, std::uint64_t boot) {
  const DiskDirectory::Path final_path = directory_.path_of(index_name_);
  index_name_ = "index.new";
  const DiskDirectory::Path path = directory_.path_of(index_name_);
  sys::unlink(path.text);
  auto created = DiskIndex::create(path.text, geometry, boot);
  if (!created) {
    sys::unlink(path.text);
    return base::fail(created.error().value);
  }
  index_ = std::make_unique<DiskIndex>(std::move(*created));
  if (const auto built = build(path.text); !built) {
    sys::unlink(path.text);
    return built;
  }
  const long renamed = sys::raw(SYS_renameat2, AT_FDCWD, sys::arg(path.text), AT_FDCWD,
                                sys::arg(final_path.text), 0);
  index_name_ = "index";
  if (sys::failed(renamed)) return base::fail(static_cast<int>(-renamed));
  return {};
}

base::Result<void> DiskStore::attach_private(std::string& why) {
  is_private_ = true;
  const auto numbers = directory_.list_segments();
  const std::uint64_t bytes = numbers ? bytes_of_segments(directory_, *numbers) : 0;
  bound_ = std::max(bytes, k_least_bound);
  segment_bytes_ = k_least_disk_segment_bytes;
  auto index = DiskIndex::create_private(wanted_geometry());
  int error = numbers ? 0 : numbers.error().value;
  if (!index) error = index.error().value;
  if (error == 0) {
    index_ = std::make_unique<DiskIndex>(std::move(*index));
    if (const auto built = build(nullptr); !built) error = built.error().value;
  }
  if (error == 0) return {};
  why = fmt::format("cannot use {}: {}", directory_.path(), base::text_of_error(error));
  return base::fail(error);
}

base::Result<void> DiskStore::build(const char* path) {
  auto builder = DiskIndexBuilder::create(*index_, path);
  if (!builder) return base::fail(builder.error().value);
  if (const auto filled = reconcile(&*builder); !filled) return filled;
  while (true) {
    const auto more = builder->end_pass();
    if (!more) return base::fail(more.error().value);
    if (!*more) return {};
    const auto numbers = directory_.list_segments();
    if (!numbers) return base::fail(numbers.error().value);
    for (const std::uint32_t number : *numbers) {
      const DiskSegmentRow& row = index_->row_of(number);
      if (row.number() != number || row.state() != DiskSegmentState::sealed) continue;
      const auto fd = directory_.open_segment(number, O_RDONLY);
      if (!fd) continue;
      if (const auto contents = read_footer(fd->get(), number))
        add_rows(number, *contents, *builder);
    }
  }
}

base::Result<void> DiskStore::reconcile(DiskIndexBuilder* builder) {
  if (!index_->is_there()) return base::fail(EIO);
  const auto numbers = directory_.list_segments();
  if (!numbers) return base::fail(numbers.error().value);
  for (std::uint32_t i = 0; i < index_->geometry().row_count; ++i) {
    DiskSegmentRow& row = index_->row(i);
    if (row.state() == DiskSegmentState::free) continue;
    // Frees rows whose segment file was removed, or whose number belongs to another row: no process
    // can read from them.
    const bool is_there = std::binary_search(numbers->begin(), numbers->end(), row.number());
    if (!is_there || &index_->row_of(row.number()) != &row) row.set(0, DiskSegmentState::free);
  }
  for (std::size_t i = 0; i < numbers->size(); ++i) {
    const std::uint32_t number = (*numbers)[i];
    // Makes the kernel read many footers at a time, because after a reboot none of them is in
    // memory.
    if (builder != nullptr && i + k_files_ahead < numbers->size())
      will_need_footer(directory_, (*numbers)[i + k_files_ahead]);
    const DiskSegmentRow& row = index_->row_of(number);
    const bool is_known = row.number() == number && row.state() == DiskSegmentState::sealed;
    if (!is_known) load(number, builder);
  }
  if (!numbers->empty()) {
    auto& next = index_->header().next_number;
    next.store(std::max(next.load(std::memory_order_relaxed), numbers->back() + 1),
               std::memory_order_relaxed);
  }
  return {};
}

bool DiskStore::is_entered(std::uint64_t hash, std::uint32_t number, std::uint64_t offset) const {
  bool found = false;
  index_->visit(hash, [&](const DiskPlace& place, std::uint64_t word) {
    found = found || (place.number == number && place.offset == offset &&
                      (word & DiskIndex::k_tentative) == 0);
  });
  return found;
}

// Makes a sealed file of a file that has no footer and whose writer is dead.
base::Result<SegmentContents> DiskStore::recover(int fd, std::uint32_t number) {
  auto contents = walk_records(fd, number);
  if (!contents) return contents;
  const DiskSegmentRow& row = index_->row_of(number);
  if (!is_private_ && row.number() == number && row.state() == DiskSegmentState::open) {
    // The file was written with this index. Leaves out records that the writer had not confirmed:
    // their files may have changed, and no process would check that again.
    std::erase_if(contents->rows, [&](const DiskFooterRow& r) {
      return !is_entered(r.path_hash, number, std::uint64_t{r.offset} * k_record_alignment);
    });
  }
  if (is_private_) return contents;
  if (contents->rows.empty()) return base::fail(EBADMSG);
  const auto sealed = write_footer(fd, number, contents->data_end, contents->rows, false);
  if (sealed) contents->file_bytes = *sealed;
  return contents;
}

void DiskStore::load(std::uint32_t number, DiskIndexBuilder* builder) {
  DiskSegmentRow& row = index_->row_of(number);
  const bool is_row_of_it = row.number() == number && row.state() != DiskSegmentState::free;
  const auto leave = [&] {
    if (!is_private_) sys::unlink(directory_.path_of_segment(number).text);
    if (is_row_of_it) row.set(0, DiskSegmentState::free);
  };
  // Removes the file if its eviction was not completed, or if the index has no free row for it. The
  // index of an earlier job may have been larger.
  const bool is_leaving = is_row_of_it && row.state() == DiskSegmentState::leaving;
  if (is_leaving || (!is_row_of_it && row.state() != DiskSegmentState::free)) return leave();
  const auto fd = directory_.open_segment(number, is_private_ ? O_RDONLY : O_RDWR);
  if (!fd) return;
  auto contents = read_footer(fd->get(), number);
  const bool is_unsealed = !contents && contents.error().value == EBADMSG;
  if (is_unsealed) {
    if (!is_private_ && !try_lock(fd->get(), LOCK_EX)) {
      // The writer is alive, and will seal the file.
      if (!is_row_of_it) row.set(number, DiskSegmentState::open);
      return;
    }
    contents = recover(fd->get(), number);
    if (!contents && contents.error().value == EBADMSG) return leave();
  }
  if (!contents) return;
  enter(number, *contents, builder);
  // The file may still grow.
  if (is_private_ && is_unsealed) row.set(number, DiskSegmentState::open);
}

void DiskStore::enter(std::uint32_t number, const SegmentContents& contents,
                      DiskIndexBuilder* builder) {
  DiskSegmentRow& row = index_->row_of(number);
  const bool is_new = row.number() != number || row.state() == DiskSegmentState::free;
  if (is_new) {
    row.job.store(0, std::memory_order_relaxed);
    row.touched_job.store(0, std::memory_order_relaxed);
    row.touched_s.store(contents.changed_s, std::memory_order_relaxed);
  }
  // A footer also lists records that were dropped before the seal. If the row already counts
  // dropped records, its count includes later ones, so it is kept. A file without a footer yields
  // only records that are not dropped.
  const auto dropped = std::count_if(contents.rows.begin(), contents.rows.end(),
                                     [](const auto& r) { return r.state != 0; });
  if (is_new || !contents.has_footer)
    row.dropped.store(static_cast<std::uint32_t>(dropped), std::memory_order_relaxed);
  row.records.store(static_cast<std::uint32_t>(contents.rows.size()), std::memory_order_relaxed);
  row.pages.store(pages_of(contents.file_bytes), std::memory_order_relaxed);
  row.set(number, DiskSegmentState::sealed);
  if (builder != nullptr) return add_rows(number, contents, *builder);
  for (const DiskFooterRow& r : contents.rows) {
    if (r.state != 0) continue;
    const std::uint64_t offset = std::uint64_t{r.offset} * k_record_alignment;
    if (is_entered(r.path_hash, number, offset)) continue;
    // Adds the entry by inode first. If this fails, adds no entry by path, because a change through
    // another name would not find the record.
    if (r.has_inode() && !insert(r.inode_hash, word_of(r.inode_hash, number, r))) return;
    insert(r.path_hash, word_of(r.path_hash, number, r));
  }
}

void DiskStore::add_rows(std::uint32_t number, const SegmentContents& contents,
                         DiskIndexBuilder& builder) {
  const auto& rows = contents.rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + k_ahead < rows.size()) {
      builder.prefetch(rows[i + k_ahead].path_hash);
      builder.prefetch(rows[i + k_ahead].inode_hash);
    }
    if (rows[i].state != 0) continue;
    if (rows[i].has_inode() &&
        !builder.add(rows[i].inode_hash, word_of(rows[i].inode_hash, number, rows[i])))
      return;
    builder.add(rows[i].path_hash, word_of(rows[i].path_hash, number, rows[i]));
  }
}

// The caller must hold the directory's lock.
bool DiskStore::insert(std::uint64_t hash, std::uint64_t word) {
  while (true) {
    const std::uint32_t tables = index_->tables();
    if (index_->insert(hash, word)) return true;
    if (!make_room(index_->next_table_bytes()) ||
        !index_->add_table(directory_.path_of(index_name_).text, tables))
      return false;
  }
}

}  // namespace cube::cache
