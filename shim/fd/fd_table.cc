#include "shim/fd/fd_table.h"

namespace cube::shim {

constinit FdTable g_fds;

void FdTable::raise_end(int fd) {
  int end = end_.load(std::memory_order_relaxed);
  while (end <= fd && !end_.compare_exchange_weak(end, fd + 1, std::memory_order_acq_rel)) {
  }
}

bool FdTable::serves_any() const {
  for (int fd = 0, n = end(); fd < n; ++fd) {
    const RowKind of = kind_of(row_of(fd).load(std::memory_order_acquire));
    if (of == RowKind::served || of == RowKind::busy) return true;
  }
  return false;
}

void FdTable::set(int fd, RowKind kind, OpenFileRef file, bool close_on_exec) {
  raise_end(fd);
  const std::uint64_t generation = (file->generation & 0xfffffffULL) << 32;
  const std::uint64_t index = open_files::index_of(file.release());
  row_of(fd).store((static_cast<std::uint64_t>(kind) << 61) |
                       (close_on_exec ? k_close_on_exec : 0) | generation | index,
                   std::memory_order_release);
}

void FdTable::set_directory(int fd) {
  if (!is_within(fd)) return;
  row_of(fd).store(static_cast<std::uint64_t>(RowKind::directory) << 61, std::memory_order_release);
}

bool FdTable::set_close_on_exec(int fd, bool on) {
  if (!is_within(fd)) return false;
  std::uint64_t row = settled_row(fd);
  while (kind_of(row) == RowKind::served) {
    const std::uint64_t wanted = on ? row | k_close_on_exec : row & ~k_close_on_exec;
    if (row_of(fd).compare_exchange_weak(row, wanted, std::memory_order_acq_rel)) return true;
    row = settled_row(fd);
  }
  return false;
}

OpenFileRef FdTable::reference_in(std::uint64_t row) {
  const RowKind kind = kind_of(row);
  // A materialized stream keeps its listing until closedir, because entries that readdir has
  // returned stay valid. The rows of set_directory() have no file.
  const bool keeps_listing = kind == RowKind::directory && (row & (k_close_on_exec - 1)) != 0;
  if (kind != RowKind::served && kind != RowKind::mount_stream && !is_of_kernel(kind) &&
      !keeps_listing)
    return {};
  return OpenFileRef::adopt(open_files::at(static_cast<std::uint32_t>(row)));
}

namespace {

// Warns readers of a fill or a large file that this fd is about to be closed or replaced.
void leave(int fd, std::uint64_t row) {
  const RowKind kind = FdTable::kind_of(row);
  if (kind != RowKind::served && kind != RowKind::large) return;
  OpenFile& file = *open_files::at(static_cast<std::uint32_t>(row));
  if (kind == RowKind::large || file.fill != nullptr) [[unlikely]]
    cache::FdEpoch::file_leaves(fd);
  if (kind == RowKind::large) [[unlikely]]
    file.large->fd_leaves();
}

}  // namespace

OpenFileRef FdTable::take(int fd) {
  if (!is_within(fd)) return {};
  while (std::uint64_t row = settled_row(fd)) {
    if (!row_of(fd).compare_exchange_weak(row, 0, std::memory_order_acq_rel)) continue;
    leave(fd, row);
    return reference_in(row);
  }
  return {};
}

std::uint64_t FdTable::lock(int fd) {
  constexpr std::uint64_t busy = static_cast<std::uint64_t>(RowKind::busy) << 61;
  while (true) {
    std::uint64_t row = settled_row(fd);
    if (!row_of(fd).compare_exchange_weak(row, busy, std::memory_order_acq_rel)) continue;
    leave(fd, row);
    return row;
  }
}

bool FdTable::lock_if(int fd, const OpenFile* file, std::uint64_t& was, RowKind kind) {
  std::uint64_t row = row_of(fd).load(std::memory_order_acquire);
  if (kind_of(row) != kind || open_files::at(static_cast<std::uint32_t>(row)) != file) return false;
  constexpr std::uint64_t busy = static_cast<std::uint64_t>(RowKind::busy) << 61;
  if (!row_of(fd).compare_exchange_strong(row, busy, std::memory_order_acq_rel)) return false;
  was = row;
  return true;
}

void FdTable::end_busy_rows() {
  for (int fd = 0; fd < end(); ++fd) {
    const std::uint64_t row = row_of(fd).load(std::memory_order_relaxed);
    if (kind_of(row) == RowKind::served)
      open_files::at(static_cast<std::uint32_t>(row))->is_replacing.store(false);
    if (kind_of(row) != RowKind::busy) continue;
    const long flags = base::sys::fcntl(fd, F_GETFL);
    if (!base::sys::failed(flags) && (flags & O_PATH) != 0) base::sys::close(fd);
    row_of(fd).store(0, std::memory_order_release);
  }
}

}  // namespace cube::shim
