#include "cache/region/resident_pages.h"

#include <sys/mman.h>

#include <utility>

#include "cache/base/sys.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

// Threads share the sum, so a thread adds to the sum only after it has read this many bytes.
constexpr std::uint64_t k_step = 8 << 20;  // bytes
constinit thread_local std::uint64_t t_read [[gnu::tls_model("initial-exec")]] = 0;

}  // namespace

void ResidentPages::note_read(std::uint64_t bytes, const base::Mapping& data,
                              const base::Mapping& writable) {
  t_read += bytes;
  if (t_read < k_step) return;
  const std::uint64_t own = std::exchange(t_read, 0);
  const std::uint64_t bound = bound_.load(std::memory_order_relaxed);
  if (bound == 0 || read_.fetch_add(own, std::memory_order_relaxed) + own < bound) return;
  read_.store(0, std::memory_order_relaxed);
  // The mappings are shared, so this drops their entries in the page table, but not their bytes.
  // EINVAL: the program has locked its memory.
  for (const base::Mapping* part : {&data, &writable})
    sys::madvise(part->data(), part->size(), MADV_DONTNEED);
}

}  // namespace cube::cache
