// An open file description of the program, which several fds share after dup. Each object describes
// a served file (a pin, the bytes, the offset), a served directory, a large file that is served in
// blocks, or a file under a prefix that is open for writing. No process may cache a file that is
// open for writing. Objects live in a pool and are never freed, so that a stale reference still
// finds a valid counter. Invariants: `refs` counts fds and calls in progress; the last of them
// releases the pin. k_moved is set in the offset as soon as a thread begins to materialize the
// file. A call that sees k_moved drops its reference and loads the fd's row again. Thread-safe,
// lock-free and async-signal-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <utility>

#include "cache/file_cache.h"
#include "cache/fill/partial_fill.h"
#include "cache/record/listing.h"

namespace cube::shim {

struct alignas(64) OpenFile {
  static constexpr std::uint64_t k_moved = 1ULL << 63;
  enum class Kind : std::uint8_t { served, writer, directory, large };
  // The kernel's file under the fds. `blocks`: a placeholder of an object whose bytes arrive in
  // blocks. `copy`: a memfd, which keeps the offset and answers reads (mode real). For an object in
  // blocks, the memfd only keeps the offset, which parent and child share. `origin`: the origin's
  // own file, for locks. The bytes and the offset stay in this process, which repeats each change
  // of the offset in the kernel.
  enum class FdKind : std::uint8_t { placeholder, blocks, copy, origin };

  std::atomic<std::uint32_t> refs{0};
  std::atomic<std::uint32_t> next_free{0};
  std::atomic<std::uint64_t> offset{0};
  std::uint32_t generation = 0;  // counts the uses of the object, to recognize a row of an
                                 // earlier use
  const cache::Record* record = nullptr;
  const std::byte* data = nullptr;
  std::uint64_t size = 0;
  Kind kind = Kind::served;
  std::atomic<FdKind> fd_kind{FdKind::placeholder};
  std::atomic<bool> sticky{false};  // a writer that never ends: it may write after its last close
  std::atomic<bool> is_kept_from_child{false};  // no fd was free to share the offset with a child
  std::atomic<std::uint32_t> users_of_copy{
      0};                                 // calls that may move the offset of a copy (CopyUse)
  int flags = 0;                          // the program's, for F_GETFL
  std::atomic<bool> is_replacing{false};  // a thread is replacing the file's fds (ReplacesFds)
  // These counts are only for the report. The last close or tell_counts() adds them to the region's
  // counts. If several threads read one file at the same time, a count may be lost or reported
  // twice. A locked add for each call would prevent this, but costs too much.
  std::atomic<std::uint32_t> calls_saved{0};
  std::atomic<std::uint64_t> bytes_served{0};
  [[gnu::always_inline]] void count(std::uint64_t bytes) {
    bytes_served.store(bytes_served.load(std::memory_order_relaxed) + bytes,
                       std::memory_order_relaxed);
    calls_saved.store(calls_saved.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // Like count(), but not for the path of a hit. Reports to the region in steps, so that a process
  // that is killed has reported nearly all of its counts.
  [[gnu::noinline, gnu::cold]] void count_in_steps(std::uint64_t bytes);
  void tell_counts();
  bool is_copy() const { return fd_kind.load(std::memory_order_relaxed) == FdKind::copy; }
  bool shares_offset() const { return large != nullptr && is_copy(); }
  // show_origin stores `fd_kind` before it changes the fds. The store pairs with the loads after a
  // dup.
  bool is_placeholder() const { return fd_kind.load(std::memory_order_acquire) <= FdKind::blocks; }
  // Call this only if the file is not a copy. If the result is false, read the file by the
  // functions of calls/origin_reads.h.
  bool has_bytes() const { return fd_kind.load(std::memory_order_acquire) == FdKind::placeholder; }
  bool is_origin() const { return fd_kind.load(std::memory_order_acquire) == FdKind::origin; }
  // The fill that fetches or has fetched the bytes as the program reads them. Null for most files.
  // The record is unconfirmed until all bytes are present.
  cache::PartialFill* fill = nullptr;
  // True if the record may be used: the file has not changed since its open, and its fill was not
  // given up.
  bool is_current() const { return !record->is_stale() || is_filling(); }
  // Not inlined, so that the code on the path of a hit stays small.
  [[gnu::noinline, gnu::cold]] bool is_filling() const;
  cache::Pin pin;
  cache::FileStat written;              // of a writer
  cache::Listing* directory = nullptr;  // of a directory
  // Null except in two cases: a large file, whose fd refers to the origin's own file, and an object
  // that is served in blocks.
  cache::LargeFile* large = nullptr;
};

// The scope of a call that moves the offset of a copy, which the kernel keeps (mode real). A thread
// that sets k_moved waits for all scopes that began earlier. Then it transfers the offset to
// another file. The memory orders of users_of_copy and of k_moved pair with await_users_of_copy.
class CopyUse {
 public:
  explicit CopyUse(OpenFile& file) : file_(file) {
    file_.users_of_copy.fetch_add(1, std::memory_order_seq_cst);
    is_too_late_ = (file_.offset.load(std::memory_order_seq_cst) & OpenFile::k_moved) != 0;
  }
  ~CopyUse() { file_.users_of_copy.fetch_sub(1, std::memory_order_release); }
  CopyUse(const CopyUse&) = delete;
  CopyUse& operator=(const CopyUse&) = delete;
  bool is_too_late() const { return is_too_late_; }

 private:
  OpenFile& file_;
  bool is_too_late_ = false;
};

// A counted reference to an OpenFile.
class OpenFileRef {
 public:
  OpenFileRef() = default;
  OpenFileRef(OpenFileRef&& other) noexcept : file_(std::exchange(other.file_, nullptr)) {}
  OpenFileRef& operator=(OpenFileRef&& other) noexcept {
    if (this != &other) {
      reset();
      file_ = std::exchange(other.file_, nullptr);
    }
    return *this;
  }
  ~OpenFileRef() {
    if (file_ != nullptr) reset();
  }

  explicit operator bool() const { return file_ != nullptr; }
  OpenFile* operator->() const { return file_; }
  OpenFile& operator*() const { return *file_; }
  OpenFile* get() const { return file_; }
  // Defined in the header so that it can be inlined on the path of a hit.
  void reset() {
    OpenFile* const file = std::exchange(file_, nullptr);
    // acq_rel: the thread that drops the last reference sees all earlier uses of the file.
    if (file != nullptr && file->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) end(file);
  }
  // Gives up the reference, which a row of the fd table then holds.
  OpenFile* release() { return std::exchange(file_, nullptr); }
  static OpenFileRef adopt(OpenFile* file) {
    OpenFileRef ref;
    ref.file_ = file;
    return ref;
  }
  OpenFileRef duplicate() const;

 private:
  static void end(OpenFile* file);

  OpenFile* file_ = nullptr;
};

namespace open_files {

inline constexpr std::uint32_t k_capacity = 1 << 16;

// Call this for a writer that a child or a mapping may still use after this process has closed it.
void let_writing_last(OpenFile& file, cache::Sharing how);
// Returns an empty reference if all objects are in use or memory is exhausted. The caller then
// leaves the call to the kernel.
OpenFileRef make();
std::uint32_t index_of(const OpenFile* file);
OpenFile* at(std::uint32_t index);
// Reserves the memory of all objects now instead of at the first make(). Returns false if there is
// not enough memory.
bool reserve();
// Returns the memory of all objects. Empty before the first make().
std::span<const std::byte> memory();
// Call this in a forked child. Forgets the pins and the counts, which belong to the parent.
void forget_pins();
// Adds a reference. Returns false if the last reference was already dropped.
bool try_acquire(OpenFile* file);

}  // namespace open_files
}  // namespace cube::shim
