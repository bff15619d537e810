#include "cache/region/writers.h"

#include <fcntl.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <optional>

#include "cache/base/hash.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/process_id.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

// hash of the file:48 | shared:1 | mapped:1 | how often the file is open for writing:14. The count
// stops at its largest value. `shared` and `mapped` are used only in the words of a process, not in
// those of a stripe.
using Word = std::uint64_t;
constexpr Word k_times = 0x3fff, k_mapped = 0x4000, k_shared = 0x8000, k_not_hash = 0xffff;

Word hash_of(const FileStat& stat) {
  return base::hash_inode(stat.device(), stat.inode) & ~k_not_hash;
}
std::uint32_t stripe_index(Word word) {
  return static_cast<std::uint32_t>((word >> 16) % k_writer_stripes);
}

bool is_of(Word word, Word hash) { return (word & k_times) != 0 && (word & ~k_not_hash) == hash; }
Word one_more(Word word) { return (word & k_times) == k_times ? word : word + 1; }

// Counts one more writer of this file, in the file's place or in a free place. False: no place is
// free.
bool add(std::atomic<Word>* places, std::uint32_t count, Word hash) {
  for (const bool take_free : {false, true}) {
    for (std::uint32_t i = 0; i < count; ++i) {
      Word word = places[i].load(std::memory_order_seq_cst);
      // A place without writers is free, although it may still have a hash.
      while (take_free ? (word & k_times) == 0 : is_of(word, hash)) {
        if (places[i].compare_exchange_weak(word, take_free ? hash | 1 : one_more(word),
                                            std::memory_order_seq_cst))
          return true;
      }
    }
  }
  return false;
}

// Subtracts `n` writers of this file. False: no place counts that many writers of the file.
bool subtract(std::atomic<Word>* places, std::uint32_t count, Word hash, Word n) {
  for (std::uint32_t i = 0; i < count; ++i) {
    Word word = places[i].load(std::memory_order_seq_cst);
    while (is_of(word, hash) && (word & k_times) >= n) {
      const bool is_at_most = (word & k_times) == k_times;
      if (places[i].compare_exchange_weak(word, is_at_most ? word : word - n,
                                          std::memory_order_seq_cst))
        return true;
    }
  }
  return false;
}

void end(WriterStripe& stripe, Word hash, Word n) {
  if (subtract(stripe.writers, WriterStripe::k_places, hash, n)) return;
  // Some writers of the file may be counted in `others`. If two writers began at the same time, the
  // file can also have several places.
  for (; n > 0; --n) {
    if (!subtract(stripe.writers, WriterStripe::k_places, hash, 1))
      stripe.others.fetch_sub(1, std::memory_order_seq_cst);
  }
}

// The marks in a word of LeftWriter.
constexpr Word k_left_shared = 1, k_order = 0x7ffe, k_left_mapped = 0x8000;

base::ProcessId process_of(const LeftWriter& row) {
  base::ProcessId process;
  process.pid = static_cast<std::uint32_t>(row.pid.load(std::memory_order_relaxed));
  process.start_time = row.start_time.load(std::memory_order_relaxed);
  process.pid_namespace = row.pid_namespace.load(std::memory_order_relaxed);
  return process;
}

// Removes the row. Increments RegionHeader::name_changes and, for the caller, `removals`. False:
// the row was reused for another writer.
bool remove(Region& region, LeftWriter& row, Word word, std::uint64_t& removals) {
  // A fetch may have asked for the file's stat before the last byte was written. Because of this
  // increment, such a fetch notices that something has changed.
  region.header().name_changes.fetch_add(1, std::memory_order_seq_cst);
  ++removals;
  if (!row.word.compare_exchange_strong(word, 0, std::memory_order_seq_cst)) return false;
  region.header().left_writers.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

// Whether the process of this row was the file's only writer, and is dead.
bool has_ended(const LeftWriter& row, Word word) {
  return (word & k_left_shared) == 0 && base::liveness_of(process_of(row)) == base::Liveness::dead;
}

// Returns a row that is free, or that has just become free. Null: all rows are in use.
LeftWriter* find_row(Region& region) {
  std::uint64_t removals = 0;
  for (const bool look_closely : {false, true}) {
    for (std::uint32_t i = 0; i < k_left_writers; ++i) {
      LeftWriter& row = region.left_writer(i);
      const Word word = row.word.load(std::memory_order_acquire);
      if (word == 0 ||
          (look_closely && has_ended(row, word) && remove(region, row, word, removals)))
        return &row;
    }
  }
  return nullptr;
}

// Adds a LeftWriter for the file of this word. False: there is no room.
bool leave(Region& region, Word own, const base::ProcessId& process) {
  LeftWriter* const row = find_row(region);
  if (row == nullptr) return false;
  RegionHeader& header = region.header();
  header.left_writers.fetch_add(1, std::memory_order_seq_cst);
  row->pid.store(process.pid, std::memory_order_relaxed);
  row->start_time.store(process.start_time, std::memory_order_relaxed);
  row->pid_namespace.store(process.pid_namespace, std::memory_order_relaxed);
  const Word order =
      (Word{header.left_order.fetch_add(1, std::memory_order_relaxed)} << 1) & k_order;
  const Word how =
      ((own & k_shared) != 0 ? k_left_shared : 0) | ((own & k_mapped) != 0 ? k_left_mapped : 0);
  row->word.store((own & ~k_not_hash) | order | how, std::memory_order_seq_cst);
  return true;
}

// Whether the kernel cannot see mappings of the file. On a stacked file system, a mapping maps the
// file of the lower file system, and the kernel believes that the upper file is closed.
bool hides_mappings(int fd) {
  constexpr long k_overlay = 0x794c7630, k_ecryptfs = 0xf15f;
  struct ::statfs fs {};
  return sys::failed(sys::raw(SYS_fstatfs, fd, sys::arg(&fs))) || fs.f_type == k_overlay ||
         fs.f_type == k_ecryptfs;
}

// Takes the signal of a broken lease if this signal is pending in this thread. If the pending
// signal does not come from the lease, the signal was meant for the program, and is sent again.
void take_lease_signal(int signal, int fd) {
  const std::uint64_t set = std::uint64_t{1} << (signal - 1);
  const struct ::timespec now {};
  ::siginfo_t info{};
  if (sys::raw(SYS_rt_sigtimedwait, sys::arg(&set), sys::arg(&info), sys::arg(&now), sizeof set) !=
      signal)
    return;
  const bool is_of_lease = info.si_code == POLL_MSG && info.si_fd == fd;
  if (!is_of_lease) sys::raw(SYS_rt_sigqueueinfo, sys::getpid(), signal, sys::arg(&info));
}

// The kernel's answer to the question whether a file is open for writing.
enum class OpenForWriting : std::uint8_t { nowhere, somewhere, unknown };

// Whether writers are the only reason for which the file's file system refuses a lease. The answer
// is yes for local file systems and for FUSE. NFS 4 and SMB also refuse a lease with EAGAIN if the
// server has granted no delegation (oplock). A file system on a block device is local. For any
// other file system, its type decides. The answer for the last such device is remembered.
bool refuses_for_writers_alone(int fd, const FileStat& stat) {
  // The last device plus one, shifted left by one bit. The lowest bit is the answer for this
  // device.
  static constinit std::atomic<std::uint64_t> last{0};
  if (stat.device_major != 0) return true;
  const std::uint64_t known = last.load(std::memory_order_relaxed), device = (stat.device() + 1)
                                                                             << 1;
  if ((known & ~std::uint64_t{1}) == device) return (known & 1) != 0;
  // tmpfs, ramfs, btrfs, overlayfs, FUSE, ZFS, bcachefs
  constexpr std::uint64_t k_types[] = {0x01021994, 0x858458f6, 0x9123683e, 0x794c7630,
                                       0x65735546, 0x2fc12fc1, 0xca451a4e};
  struct ::statfs fs {};
  if (sys::failed(sys::raw(SYS_fstatfs, fd, sys::arg(&fs)))) return false;
  const std::uint64_t type = static_cast<std::uint64_t>(fs.f_type) & 0xffffffff;
  const bool does = std::find(std::begin(k_types), std::end(k_types), type) != std::end(k_types);
  last.store(device | (does ? 1 : 0), std::memory_order_relaxed);
  return does;
}

// Asks for a read lease. The kernel grants the lease only if no process on this node has the file
// open or mapped for writing. The answer is `unknown` on file systems without leases (NFS 3, Ceph,
// 9p), and if the process neither owns the file nor has CAP_LEASE. Asking causes no request to a
// server.
OpenForWriting ask_kernel(int fd, const FileStat& stat) {
  // This thread returns the lease immediately, but an open for writing in between breaks the lease,
  // and the kernel then sends a signal. The signal goes to this thread, which blocks all signals.
  // So the program never sees the signal, and no handler can jump out while the lease exists. By
  // default, a process ignores this signal.
  constexpr int k_signal = SIGURG;
  const base::BlockSignals block;
  ::f_owner_ex owner{.type = F_OWNER_TID, .pid = static_cast<int>(sys::raw(SYS_gettid))};
  if (sys::failed(sys::fcntl(fd, F_SETOWN_EX, sys::arg(&owner)))) return OpenForWriting::unknown;
  long error = -EINVAL;
  if (!sys::failed(sys::fcntl(fd, F_SETSIG, k_signal))) {
    error = sys::fcntl(fd, F_SETLEASE, F_RDLCK);
    if (!sys::failed(error)) sys::fcntl(fd, F_SETLEASE, F_UNLCK);
    sys::fcntl(fd, F_SETSIG, 0);
  }
  owner.pid = 0;
  sys::fcntl(fd, F_SETOWN_EX, sys::arg(&owner));
  if (!sys::failed(error)) {
    take_lease_signal(k_signal, fd);
    return OpenForWriting::nowhere;
  }
  return error == -EAGAIN && refuses_for_writers_alone(fd, stat) ? OpenForWriting::somewhere
                                                                 : OpenForWriting::unknown;
}

// Whether the file may be written by a process that has inherited it, or by a process without the
// library.
bool is_written_by_others(Region& region, const FileStat& stat, int fd, std::uint64_t& removals) {
  const Word hash = hash_of(stat);
  const bool are_any_left = region.header().left_writers.load(std::memory_order_seq_cst) != 0;
  constexpr std::uint32_t k_most = 8;
  std::uint32_t found = 0;
  bool is_mapped = false;
  LeftWriter* rows[k_most] = {};
  Word words[k_most] = {};
  for (std::uint32_t i = 0; are_any_left && i < k_left_writers; ++i) {
    LeftWriter& row = region.left_writer(i);
    const Word word = row.word.load(std::memory_order_seq_cst);
    if (word == 0 || (word & ~k_not_hash) != hash) continue;
    if (has_ended(row, word) && remove(region, row, word, removals)) continue;
    if (found == k_most) return true;
    is_mapped |= (word & k_left_mapped) != 0;
    rows[found] = &row;
    words[found++] = word;
  }
  // Asks the kernel after all rows were read, so that the kernel's answer is newer than the rows.
  const OpenForWriting is_open = fd >= 0 ? ask_kernel(fd, stat) : OpenForWriting::unknown;
  if (found == 0) return is_open == OpenForWriting::somewhere;
  if (is_open != OpenForWriting::nowhere || (is_mapped && hides_mappings(fd))) return true;
  bool is_left = false;
  for (std::uint32_t i = 0; i < found; ++i)
    is_left |= !remove(region, *rows[i], words[i], removals);
  return is_left;
}

}  // namespace

WriterStripe& writer_stripe_of(Region& region, const FileStat& stat) {
  return region.writer_stripe(stripe_index(hash_of(stat)));
}

void writing_begins(Region& region, const FileStat& stat) {
  const Word hash = hash_of(stat);
  WriterStripe& stripe = writer_stripe_of(region, stat);
  if (!add(stripe.writers, WriterStripe::k_places, hash))
    stripe.others.fetch_add(1, std::memory_order_seq_cst);
  // Adds the process's own note last. If this process is killed in between, the file counts as
  // written forever and is never cached, which only costs time.
  add(region.own_writers(region.own_slot()), k_own_writers, hash);
}

void writing_is_shared(Region& region, const FileStat& stat, Sharing how) {
  const Word marks = k_shared | (how == Sharing::mapped ? k_mapped : 0);
  auto* const own = region.own_writers(region.own_slot());
  for (std::uint32_t i = 0; i < k_own_writers; ++i) {
    Word word = own[i].load(std::memory_order_seq_cst);
    while (is_of(word, hash_of(stat)) &&
           !own[i].compare_exchange_weak(word, word | marks, std::memory_order_seq_cst))
      continue;
  }
}

bool is_writing_shared(Region& region, const FileStat& stat) {
  const auto* const own = region.own_writers(region.own_slot());
  return std::any_of(own, own + k_own_writers, [hash = hash_of(stat)](const auto& place) {
    const Word word = place.load(std::memory_order_seq_cst);
    return is_of(word, hash) && (word & k_shared) != 0;
  });
}

void writing_ends(Region& region, const FileStat& stat) {
  const Word hash = hash_of(stat);
  subtract(region.own_writers(region.own_slot()), k_own_writers, hash, 1);
  end(writer_stripe_of(region, stat), hash, 1);
}

bool may_be_written(Region& region, const FileStat& stat, int fd, std::uint64_t* removals) {
  std::uint64_t uncounted = 0;
  const WriterStripe& stripe = writer_stripe_of(region, stat);
  if (stripe.others.load(std::memory_order_seq_cst) != 0) return true;
  const Word hash = hash_of(stat);
  for (const auto& place : stripe.writers) {
    if (is_of(place.load(std::memory_order_seq_cst), hash)) return true;
  }
  // Reads the LeftWriter rows after the stripe, because a writer gets its row before it is removed
  // from the stripe.
  return is_written_by_others(region, stat, fd, removals != nullptr ? *removals : uncounted);
}

bool is_open_for_writing(const FileStat& stat, int fd) {
  return ask_kernel(fd, stat) == OpenForWriting::somewhere;
}

void forget_writers_of(Region& region, std::uint32_t process_slot) {
  auto* const own = region.own_writers(process_slot);
  const base::ProcessId process = region.process_slot(process_slot).process;
  std::optional<base::Liveness> liveness;
  for (std::uint32_t i = 0; i < k_own_writers; ++i) {
    const Word word = own[i].load(std::memory_order_seq_cst);
    if ((word & k_times) == 0) continue;
    const bool is_shared = (word & k_shared) != 0;
    if (!liveness) liveness = base::liveness_of(process);
    // If the process has lost its lock but is alive, it has executed another program, or is about
    // to end.
    const bool may_go_on = is_shared || *liveness != base::Liveness::dead;
    const bool is_kept = may_go_on && !leave(region, word, process);
    own[i].store(0, std::memory_order_seq_cst);
    if (is_kept) continue;  // the file then counts as written as long as the region exists
    WriterStripe& stripe = region.writer_stripe(stripe_index(word));
    // A change by these writers may have gone unnoticed. Because of the new epoch, processes that
    // are now fetching files of this stripe check these files again.
    stripe.epoch.fetch_add(1, std::memory_order_seq_cst);
    end(stripe, word & ~k_not_hash, word & k_times);
  }
}

}  // namespace cube::cache
