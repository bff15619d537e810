#include "shim/fd/open_file.h"

#include <algorithm>

#include "cache/base/lane.h"
#include "cache/base/memory/lazy_pool.h"
#include "cache/region/lanes.h"
#include "shim/process/attachment.h"
#include "shim/process/process.h"

namespace cube::shim {
namespace {

// Not destroyed at exit, because destructors of other libraries may still read files.
constinit base::LazyPool<OpenFile, open_files::k_capacity> g_pool;
// Free lists: count of pops:32 | index + 1:32. The count makes a pop fail if other pops have come
// in between. The thread that drops the last reference of an object puts the object into its own
// list.
constinit base::Lane<std::atomic<std::uint64_t>> g_free[base::k_lanes];
constinit std::atomic<std::uint32_t> g_fresh{0};

void push_free(OpenFile* file) {
  const std::uint32_t index = open_files::index_of(file);
  std::atomic<std::uint64_t>& list = g_free[base::own_lane()].of;
  std::uint64_t head = list.load(std::memory_order_relaxed);
  do {
    file->next_free.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    // Release, so that the next owner sees all writes to the object. Pairs with the acquire in
    // pop_free.
  } while (!list.compare_exchange_weak(head, (head & ~0xffffffffULL) | (index + 1),
                                       std::memory_order_release));
}

OpenFile* pop_free(std::uint32_t lane) {
  std::atomic<std::uint64_t>& list = g_free[lane].of;
  std::uint64_t head = list.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(head) != 0) {
    OpenFile* const file = open_files::at(static_cast<std::uint32_t>(head) - 1);
    const std::uint64_t next =
        ((head >> 32) + 1) << 32 | file->next_free.load(std::memory_order_relaxed);
    if (list.compare_exchange_weak(head, next, std::memory_order_acquire)) return file;
  }
  return nullptr;
}

// Returns an object from another thread's list, or an object that was never used. Returns null if
// there is none.
[[gnu::noinline, gnu::cold]] OpenFile* find_free() {
  const std::uint32_t own = base::own_lane();
  for (std::uint32_t i = 1, n = base::lanes_reached(); i < n; ++i) {
    if (OpenFile* const file = pop_free((own + i) % n); file != nullptr) return file;
  }
  std::uint32_t fresh = g_fresh.load(std::memory_order_relaxed);
  do {
    if (fresh >= open_files::k_capacity || !g_pool.prepare(fresh + 1)) return nullptr;
  } while (!g_fresh.compare_exchange_weak(fresh, fresh + 1, std::memory_order_relaxed));
  return open_files::at(fresh);
}

[[gnu::noinline, gnu::cold]] void end_fill(OpenFile& file) {
  std::exchange(file.fill, nullptr)->end();
}

}  // namespace

void OpenFileRef::end(OpenFile* file) {
  if (file->kind == OpenFile::Kind::directory) {
    std::exchange(file->directory, nullptr)->release();
    push_free(file);
    return;
  }
  if (file->large != nullptr) [[unlikely]]
    std::exchange(file->large, nullptr)->end();
  if (cache::FileCache* const cache = attachment::attached_cache(); cache != nullptr) {
    if (file->kind == OpenFile::Kind::writer) {
      if (!file->sticky.load(std::memory_order_relaxed))
        cache->changes().writing_ends(file->written);
    } else {
      cache::count_served(cache->region(), file->bytes_served.load(std::memory_order_relaxed),
                          file->calls_saved.load(std::memory_order_relaxed));
    }
  }
  file->pin.release();
  if (file->fill != nullptr) [[unlikely]]
    end_fill(*file);
  file->record = nullptr;
  file->data = nullptr;
  push_free(file);
}

void OpenFile::count_in_steps(std::uint64_t bytes) {
  constexpr std::uint64_t k_step = 256 << 10;
  count(bytes);
  if (bytes_served.load(std::memory_order_relaxed) >= k_step) tell_counts();
}

void OpenFile::tell_counts() {
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache == nullptr) return;
  cache::count_served(cache->region(), bytes_served.exchange(0, std::memory_order_relaxed),
                      calls_saved.exchange(0, std::memory_order_relaxed));
}

bool OpenFile::is_filling() const { return fill != nullptr && fill->goes_on(); }

OpenFileRef OpenFileRef::duplicate() const {
  file_->refs.fetch_add(1, std::memory_order_relaxed);
  return adopt(file_);
}

namespace open_files {

void forget_pins() {
  const std::uint32_t n = std::min(g_fresh.load(std::memory_order_relaxed), k_capacity);
  for (std::uint32_t i = 0; i < n; ++i) {
    at(i)->pin.forget();
    at(i)->users_of_copy.store(0, std::memory_order_relaxed);  // counts threads of the parent
    at(i)->bytes_served.store(0, std::memory_order_relaxed);
    at(i)->calls_saved.store(0, std::memory_order_relaxed);
  }
}

void let_writing_last(OpenFile& file, cache::Sharing how) {
  file.sticky.store(true, std::memory_order_relaxed);
  if (cache::FileCache* const cache = attachment::attached_cache(); cache != nullptr)
    cache->changes().writing_is_shared(file.written, how);
}

OpenFile* at(std::uint32_t index) { return g_pool.at(index); }

std::uint32_t index_of(const OpenFile* file) { return g_pool.index_of(file); }

bool reserve() { return g_pool.reserve(); }

std::span<const std::byte> memory() { return g_pool.memory(); }

OpenFileRef make() {
  OpenFile* file = pop_free(base::own_lane());
  if (file == nullptr) [[unlikely]]
    file = find_free();
  if (file == nullptr) return {};
  file->offset.store(0, std::memory_order_relaxed);
  file->bytes_served.store(0, std::memory_order_relaxed);
  file->calls_saved.store(0, std::memory_order_relaxed);
  file->sticky.store(false, std::memory_order_relaxed);
  file->is_kept_from_child.store(false, std::memory_order_relaxed);
  file->users_of_copy.store(0, std::memory_order_relaxed);
  file->fd_kind.store(OpenFile::FdKind::placeholder, std::memory_order_relaxed);
  file->kind = OpenFile::Kind::served;
  ++file->generation;
  file->refs.store(1, std::memory_order_release);
  return OpenFileRef::adopt(file);
}

bool try_acquire(OpenFile* file) {
  std::uint32_t refs = file->refs.load(std::memory_order_relaxed);
  while (refs != 0) {
    if (file->refs.compare_exchange_weak(refs, refs + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

}  // namespace open_files
}  // namespace cube::shim
