// Memory of the library's own objects: operator new and delete, for this library only (the version
// script hides them). A signal handler that has interrupted the program's malloc may open a file.
// So an open, a stat, a read or a close must not call malloc. Blocks of up to 64 KiB come from
// lists by size. Larger blocks come from mmap. A list holds freed blocks; if it is empty, a block
// is cut from a chunk. Chunks are never unmapped. Invariants: Before each block is a header of 16
// bytes that names the block's list. A list changes by one compare-and-swap. Thread-safe, lock-free
// and async-signal-safe. A forked child can use the blocks that it inherits.
#include <atomic>
#include <bit>
#include <cstdint>
#include <new>

#include "cache/base/memory/own_place.h"
#include "cache/base/sys.h"

namespace {

namespace sys = cube::base::sys;

constexpr std::size_t k_alignment = 16, k_least = 32, k_most = 64 << 10, k_chunk = 256 << 10,
                      k_page = 4096;
constexpr std::size_t k_lists = 12;  // 32 bytes, 64, ... 64 KiB, header included

struct alignas(k_alignment) Header {
  // The index of the block's list, or the length of the block's own mapping, which is larger than
  // any index.
  std::uint64_t kind;
  // The next block of the list, or the beginning of the mapping. The word is atomic, because a
  // thread that loses a race for the block also reads it.
  std::atomic<std::uint64_t> link;
};
static_assert(sizeof(Header) == k_alignment);

// Address / 16 : 44 | changes : 20. The count of changes shows whether a list was changed and then
// changed back.
constexpr int k_change_bits = 20;
constinit std::atomic<std::uint64_t> g_lists[k_lists] = {};

struct alignas(k_alignment) Chunk {
  std::atomic<std::size_t> used{k_alignment};
};
static_assert(sizeof(Chunk) == k_alignment);
constinit std::atomic<Chunk*> g_chunk{nullptr};

Header* block_of(std::uint64_t head) {
  return reinterpret_cast<Header*>(head >> k_change_bits << 4);
}
std::uint64_t head_of(const Header* block, std::uint64_t before) {
  const std::uint64_t changes = (before + 1) & ((1ULL << k_change_bits) - 1);
  return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(block)) >> 4 << k_change_bits |
         changes;
}

void* map(std::size_t bytes) {
  const long at = sys::mmap(cube::base::own_place(bytes), bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return sys::failed(at) ? nullptr : reinterpret_cast<void*>(at);
}

Header* cut_from_chunk(std::size_t bytes) {
  while (true) {
    Chunk* chunk = g_chunk.load(std::memory_order_acquire);
    if (chunk != nullptr) {
      const std::size_t at = chunk->used.fetch_add(bytes, std::memory_order_relaxed);
      if (at + bytes <= k_chunk)
        return reinterpret_cast<Header*>(reinterpret_cast<std::byte*>(chunk) + at);
    }
    void* const fresh = map(k_chunk);
    if (fresh == nullptr) return nullptr;
    // Release, so that a thread that loads the pointer sees the initialized chunk.
    if (!g_chunk.compare_exchange_strong(chunk, new (fresh) Chunk, std::memory_order_acq_rel))
      sys::munmap(fresh, k_chunk);
  }
}

void* take(std::size_t list) {
  std::uint64_t head = g_lists[list].load(std::memory_order_acquire);
  Header* block = block_of(head);
  while (block != nullptr) {
    const auto* const next = reinterpret_cast<Header*>(block->link.load(std::memory_order_relaxed));
    if (g_lists[list].compare_exchange_weak(head, head_of(next, head), std::memory_order_acquire))
      break;
    block = block_of(head);
  }
  if (block == nullptr) block = cut_from_chunk(k_least << list);
  if (block == nullptr) return nullptr;
  block->kind = list;
  return block + 1;
}

void* take_mapping(std::size_t bytes, std::size_t alignment) {
  const std::size_t room = (bytes + alignment + sizeof(Header) + k_page - 1) / k_page * k_page;
  if (room < bytes) return nullptr;
  void* const at = map(room);
  if (at == nullptr) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  const std::uintptr_t data = (begin + sizeof(Header) + alignment - 1) / alignment * alignment;
  auto* const header = reinterpret_cast<Header*>(data) - 1;
  header->kind = room;
  header->link.store(begin, std::memory_order_relaxed);
  return header + 1;
}

void* allocate(std::size_t bytes, std::size_t alignment = k_alignment) {
  if (bytes > k_most - sizeof(Header) || alignment > k_alignment)
    return take_mapping(bytes, alignment);
  const std::size_t whole = bytes + sizeof(Header);
  return take(whole <= k_least ? 0
                               : static_cast<std::size_t>(std::bit_width((whole - 1) / k_least)));
}

void release(void* data) {
  if (data == nullptr) return;
  Header* const block = static_cast<Header*>(data) - 1;
  if (block->kind >= k_lists) {
    sys::munmap(reinterpret_cast<void*>(block->link.load(std::memory_order_relaxed)), block->kind);
    return;
  }
  std::atomic<std::uint64_t>& list = g_lists[block->kind];
  std::uint64_t head = list.load(std::memory_order_relaxed);
  do {
    block->link.store(reinterpret_cast<std::uintptr_t>(block_of(head)), std::memory_order_relaxed);
    // Release, so that the next owner's writes come after ours. Pairs with the acquire in take.
  } while (!list.compare_exchange_weak(head, head_of(block, head), std::memory_order_release));
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment = k_alignment) {
  void* const data = allocate(bytes, alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

std::size_t of(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

}  // namespace

void* operator new(std::size_t n) { return allocate_or_throw(n); }
void* operator new[](std::size_t n) { return allocate_or_throw(n); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocate(n); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return allocate(n); }
void* operator new(std::size_t n, std::align_val_t a) { return allocate_or_throw(n, of(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return allocate_or_throw(n, of(a)); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, of(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, of(a));
}
void operator delete(void* data) noexcept { release(data); }
void operator delete[](void* data) noexcept { release(data); }
void operator delete(void* data, std::size_t) noexcept { release(data); }
void operator delete[](void* data, std::size_t) noexcept { release(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { release(data); }
void operator delete[](void* data, const std::nothrow_t&) noexcept { release(data); }
void operator delete(void* data, std::align_val_t) noexcept { release(data); }
void operator delete[](void* data, std::align_val_t) noexcept { release(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { release(data); }
void operator delete[](void* data, std::size_t, std::align_val_t) noexcept { release(data); }
void operator delete(void* data, std::align_val_t, const std::nothrow_t&) noexcept {
  release(data);
}
void operator delete[](void* data, std::align_val_t, const std::nothrow_t&) noexcept {
  release(data);
}
