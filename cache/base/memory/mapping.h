// Owns a memory mapping and unmaps it by a raw call. Thread safety: as a plain value.
#pragma once

#include <cstdint>
#include <utility>

#include "cache/base/memory/own_place.h"
#include "cache/base/sanitizers.h"
#include "cache/base/sys.h"

// ThreadSanitizer does not see raw system calls. So if a new mapping has the address of an earlier
// mapping, ThreadSanitizer takes both for the same memory. note_unmapping and note_mapping tell
// ThreadSanitizer that the unmapping happens first.
#if CUBE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace cube::base {

#if CUBE_TSAN
inline char mapping_order;
inline void note_unmapping() { __tsan_release(&mapping_order); }
inline void note_mapping() { __tsan_acquire(&mapping_order); }
#else
inline void note_unmapping() {}
inline void note_mapping() {}
#endif

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      reset();
      address_ = std::exchange(other.address_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }

  static Result<Mapping> shared(int fd, std::uint64_t offset, std::size_t bytes, int protection) {
    return make(fd, offset, bytes, protection, MAP_SHARED);
  }
  // A read-only mapping. The mapping is private, because a FUSE mount with direct I/O refuses
  // shared mappings.
  static Result<Mapping> private_view(int fd, std::uint64_t offset, std::size_t bytes) {
    return make(fd, offset, bytes, PROT_READ, MAP_PRIVATE);
  }
  // A mapping of zeros that belongs to this process only.
  static Result<Mapping> anonymous(std::size_t bytes) {
    return make(-1, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  }
  // A mapping of zeros that forked children share.
  static Result<Mapping> shared_zeros(std::size_t bytes) {
    return make(-1, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
  }
  // A shared mapping whose address is a multiple of 2 MiB, so that huge pages of the file are
  // mapped as huge pages. `offset` must also be a multiple of 2 MiB.
  static Result<Mapping> shared_for_huge_pages(int fd, std::uint64_t offset, std::size_t bytes,
                                               int protection) {
    auto room =
        make(-1, 0, bytes + k_huge_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (!room) return room;
    const auto begin = reinterpret_cast<std::uintptr_t>(room->address_);
    const std::uintptr_t at = (begin + k_huge_page - 1) / k_huge_page * k_huge_page;
    const long mapped = sys::mmap(reinterpret_cast<void*>(at), bytes, protection,
                                  MAP_SHARED | MAP_FIXED, fd, static_cast<std::int64_t>(offset));
    if (sys::failed(mapped)) return fail(static_cast<int>(-mapped));
    // Unmaps the unused room on both sides.
    sys::munmap(room->address_, at - begin);
    sys::munmap(reinterpret_cast<void*>(at + bytes), begin + k_huge_page - at);
    room->address_ = reinterpret_cast<std::byte*>(at);
    room->bytes_ = bytes;
    return room;
  }
  static constexpr std::size_t k_huge_page = 2 << 20;
  // Takes over a mapping that forget() has released.
  static Mapping adopt(std::byte* address, std::size_t bytes) {
    Mapping mapping;
    mapping.address_ = address;
    mapping.bytes_ = bytes;
    return mapping;
  }
  // Maps the pages of a shared mapping a second time, with other rights. Needs neither an fd nor a
  // path.
  static Result<Mapping> duplicate(const std::byte* of, std::size_t bytes, int protection) {
    auto room = make(-1, 0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    return duplicate_at(room ? std::move(*room) : Mapping(), of, bytes, protection);
  }
  // Like duplicate, but the addresses of the copy and of `of` are equal modulo 2 MiB. The kernel
  // can then map each huge page of the file with one page fault instead of 512.
  static Result<Mapping> duplicate_for_huge_pages(const std::byte* of, std::size_t bytes,
                                                  int protection) {
    auto room =
        make(-1, 0, bytes + k_huge_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    // Near a limit of the address space or of locked memory, this larger mapping fails. The copy
    // then gets any address.
    if (!room) return duplicate(of, bytes, protection);
    const auto begin = reinterpret_cast<std::uintptr_t>(room->address_);
    const std::uintptr_t at = begin + (reinterpret_cast<std::uintptr_t>(of) - begin) % k_huge_page;
    if (at != begin) sys::munmap(room->address_, at - begin);
    sys::munmap(reinterpret_cast<void*>(at + bytes), begin + k_huge_page - at);
    room->address_ = reinterpret_cast<std::byte*>(at);
    room->bytes_ = bytes;
    return duplicate_at(std::move(*room), of, bytes, protection);
  }

  std::byte* data() const { return address_; }
  std::size_t size() const { return bytes_; }
  explicit operator bool() const { return address_ != nullptr; }
  // Releases the mapping without unmapping it. Used if the mapping now has another owner, or in a
  // forked child that did not inherit the mapping (MADV_DONTFORK).
  void forget() {
    address_ = nullptr;
    bytes_ = 0;
  }
  void reset() {
    if (address_ != nullptr) {
      note_unmapping();
      sys::munmap(address_, bytes_);
    }
    address_ = nullptr;
    bytes_ = 0;
  }

 private:
  static Result<Mapping> make(int fd, std::uint64_t offset, std::size_t bytes, int protection,
                              int flags) {
    const long at = sys::mmap(own_place(bytes), bytes, protection, flags, fd,
                              static_cast<std::int64_t>(offset));
    if (sys::failed(at)) return fail(static_cast<int>(-at));
    note_mapping();
    Mapping mapping;
    mapping.address_ = reinterpret_cast<std::byte*>(at);
    mapping.bytes_ = bytes;
    return mapping;
  }
  // Maps over `room`. If `room` is empty, the kernel chooses the address.
  static Result<Mapping> duplicate_at(Mapping room, const std::byte* of, std::size_t bytes,
                                      int protection) {
    const int flags = MREMAP_MAYMOVE | (room ? MREMAP_FIXED : 0);
    const long at = sys::raw(SYS_mremap, sys::arg(of), 0, static_cast<long>(bytes), flags,
                             sys::arg(room.address_));
    if (sys::failed(at)) return fail(static_cast<int>(-at));
    note_mapping();
    room.address_ = reinterpret_cast<std::byte*>(at);
    room.bytes_ = bytes;
    const long error = sys::raw(SYS_mprotect, at, static_cast<long>(bytes), protection);
    if (sys::failed(error)) return fail(static_cast<int>(-error));
    return room;
  }

  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace cube::base
