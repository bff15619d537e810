// Part of a file, mapped to be read. Private, though nobody writes: a FUSE mount with direct I/O refuses shared mappings.
// Thread safety: as a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cache/base/sys.h"

namespace cube::cache {

class FileView {
 public:
  FileView() = default;
  FileView(FileView&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  FileView& operator=(FileView&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  FileView(const FileView&) = delete;
  FileView& operator=(const FileView&) = delete;
  ~FileView() {
    if (data_ != nullptr) base::sys::munmap(data_, bytes_);
  }

  // `offset` is that of a page.
  static base::Result<FileView> map(int fd, std::uint64_t offset, std::size_t bytes) {
    const long at = base::sys::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, static_cast<std::int64_t>(offset));
    if (base::sys::failed(at)) return base::fail(static_cast<int>(-at));
    // Reading ahead would fetch pages that nobody asks for.
    base::sys::madvise(reinterpret_cast<void*>(at), bytes, MADV_RANDOM);
    FileView view;
    view.data_ = reinterpret_cast<std::byte*>(at);
    view.bytes_ = bytes;
    return view;
  }

  const std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace cube::cache
