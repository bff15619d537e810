// The part of FileCache for files that are served in blocks (fill/large/large_file.h): forwards to
// LargeFile, which documents each function. Thread-safe and async-signal-safe.
#pragma once

#include "cache/fill/large/large_file.h"

namespace cube::cache {

class LargeFiles {
 public:
  explicit LargeFiles(CacheParts& parts) : parts_(parts) {}

  // Whether this cache serves large files in blocks.
  bool are_served() const { return parts_.rules.block != 0 && parts_.serves_in_parts; }
  // Whether a chunk may find room. Segments of large files may have free places even if no segment
  // is free.
  bool may_have_room() const {
    return are_served() && parts_.region.header().has_chunks.load(std::memory_order_relaxed) != 0 &&
           LargeFile::may_have_room();
  }
  // Begins to serve a file that a program has just opened by `key`. Null: the kernel serves the
  // file.
  LargeFile* begin(std::string_view key, int fd) { return LargeFile::begin(parts_, key, fd); }
  long read(LargeFile& file, const FdEpoch& fd, std::byte* to, std::size_t n, std::uint64_t at) {
    return file.read(parts_, fd, to, n, at);
  }
  // These functions serve objects of buckets; see LargeFile.
  LargeFile* begin_object(std::string_view key, const FileStat& stat) {
    return LargeFile::begin_object(parts_, key, stat);
  }
  long read_object(LargeFile& file, std::byte* to, std::size_t n, std::uint64_t at) {
    return file.read_object(parts_, to, n, at);
  }
  int bring_object(LargeFile& file, std::uint64_t begin, std::uint64_t end) {
    return file.bring_object(parts_, begin, end);
  }
  base::Result<base::UniqueFd> copy_object(const LargeFile& file, int flags) {
    return file.copy_object(parts_, flags);
  }
  bool copy_if_present(const LargeFile& file, std::byte* to, std::size_t n, std::uint64_t at) {
    return file.copy_if_present(parts_, to, n, at);
  }
  LargeFile::Made make_gap(LargeFile& file, std::uint64_t begin, std::uint64_t end,
                           LargeFile::Gap& gap) {
    return file.make_gap(parts_, begin, end, gap);
  }
  // `stats`: the counters of the process for which the bytes were fetched.
  void fill_gap(const LargeFile& file, const LargeFile::Gap& gap, bool is_ahead,
                base::Stats& stats) {
    file.fill_gap(parts_, gap, is_ahead, stats);
  }
  LargeFile::Range ahead(LargeFile& file, std::uint64_t at, std::size_t n) {
    return file.ahead(parts_, at, n);
  }
  LargeFile::Range wanted(const LargeFile& file, const LargeFile::Range& range) {
    return file.wanted(parts_, range);
  }
  bool fetch_ahead(LargeFile& file, int fd, LargeFile::FdsLeft fds_left,
                   const LargeFile::Range& range) {
    return file.fetch_ahead(parts_, fd, fds_left, range);
  }
  LargeFile::Stretch bring_ahead(LargeFile& file, int fd, LargeFile::Range& range,
                                 const std::atomic<bool>& is_stopping,
                                 bool asks_for_block = false) {
    return file.bring_ahead(parts_, fd, range, is_stopping, asks_for_block);
  }
  std::uint64_t present_bytes(const LargeFile& file, const LargeFile::Range& range) {
    return file.present_bytes(parts_, range);
  }
  std::uint64_t present_bytes(std::string_view path, const FileStat& stat,
                              const LargeFile::Range& range) {
    return LargeFile::present_bytes(parts_, path, stat, range);
  }
  void forget(std::string_view path, const FileStat& stat, const LargeFile::Range& range) {
    LargeFile::forget(parts_, path, stat, range);
  }
  void look_after_lock(LargeFile& file, int fd) { file.look_after_lock(parts_, fd); }
  // These functions serve mappings; see LargeFile.
  bool may_be_shown(LargeFile& file, int fd) { return file.may_be_shown(parts_, fd); }
  bool look_again(LargeFile& file, int fd) { return file.look_again(parts_, fd); }
  std::size_t pieces(const LargeFile& file, LargeFile::Range& range,
                     std::span<LargeFile::Piece> into) {
    return file.pieces(parts_, range, into);
  }
  std::optional<std::uint64_t> keep_pages(LargeFile& file, const base::Mapping& mapping,
                                          std::uint64_t begin, int region_fd) {
    return file.keep_pages(parts_, mapping, begin, region_fd);
  }
  LargeFile::Reading reading_of(const LargeFile& file, const LargeFile::Range& mapped) {
    return file.reading_of(parts_, mapped);
  }
  bool is_of_whole_format(const LargeFile& file) { return file.is_of_whole_format(parts_); }
  bool note_mapping_of_ranks(LargeFile& file) { return file.note_mapping_of_ranks(parts_); }
  bool bring_to_map(LargeFile& file, const FdEpoch& fd, const LargeFile::Range& range,
                    std::uint64_t until_ns, LargeFile::Pace& pace) {
    return file.bring_to_map(parts_, fd, range, until_ns, pace);
  }
  bool fits(const LargeFile& file) { return fits(file, {0, file.size()}); }
  bool fits(const LargeFile& file, const LargeFile::Range& range) {
    return file.fits(parts_, range, file.present_bytes(parts_, range));
  }
  SingleFlight::Ticket begin_reading(const LargeFile& file) { return file.begin_reading(parts_); }
  void ask_mapped(const LargeFile& file, const base::Mapping& mapping, std::uint64_t begin,
                  const LargeFile::Range& range) {
    file.ask_mapped(parts_, mapping, begin, range);
  }
  std::optional<std::uint64_t> bring_mapped(LargeFile& file, const base::Mapping& mapping,
                                            std::uint64_t begin, const LargeFile::Range& range,
                                            int region_fd) {
    return file.bring_mapped(parts_, mapping, begin, range, region_fd);
  }
  void note_shown(const LargeFile& file, const LargeFile::Range& range) {
    file.note_shown(parts_, range);
  }
  // Counts a mapping of the program that shows some of the kernel's own pages.
  void note_mapping() { parts_.stats().count(base::Counter::block_mappings); }
  // Counts a mapping that was watched until it was unmapped.
  void note_watched() { parts_.stats().count(base::Counter::block_watched); }
  // Counts bytes that the kernel has read for mappings.
  void note_faulted(std::uint64_t bytes) {
    parts_.stats().count(base::Counter::block_faulted, bytes);
  }
  // Counts bytes that the kernel has read for the program.
  void note_left_to_kernel(std::uint64_t bytes) {
    parts_.stats().count(base::Counter::block_kernel, bytes);
  }
  std::uint64_t block() const { return parts_.rules.block; }

 private:
  CacheParts& parts_;
};

}  // namespace cube::cache
