#include "shim/calls/map/large_maps.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cache/base/memory/kernel_page.h"
#include "shim/calls/map/shared_model.h"
#include "shim/fd/kept_file.h"
#include "shim/fd/region_fd.h"
#include "shim/process/attachment.h"
#include "shim/threads/own_threads.h"

namespace cube::shim::large_maps {
namespace {

namespace sys = base::sys;
using cache::k_page;
using cache::LargeFile;

constexpr std::size_t k_most_pieces = 2048, k_at_once = 32;

constexpr std::uint64_t round_up(std::uint64_t n) { return (n + k_page - 1) / k_page * k_page; }

// False if the kernel must make the mapping: the flags need the kernel, or the mapping extends
// beyond the file's last page.
bool is_ours(const mappings::MapRequest& request, std::uint64_t size) {
  const int type = request.flags & 0x0f;
  const bool is_shared = type == MAP_SHARED || type == MAP_SHARED_VALIDATE;
  if ((type != MAP_PRIVATE && !is_shared) || (is_shared && (request.protection & PROT_WRITE) != 0))
    return false;
  if ((request.flags & ~(0x0f | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_POPULATE | MAP_NORESERVE)) !=
      0)
    return false;
  if ((request.protection & ~(PROT_READ | PROT_WRITE)) != 0 || base::kernel_page() != k_page)
    return false;
  if (request.length == 0 || request.offset < 0 ||
      request.offset % static_cast<std::int64_t>(k_page) != 0)
    return false;
  const auto offset = static_cast<std::uint64_t>(request.offset);
  return offset < size && round_up(request.length) <= round_up(size - offset);
}

// show_pieces maps at most `most` present pieces over the kernel's mapping at `at`. Returns how
// many pieces and bytes it mapped, or nothing if a piece may show some other file.
struct Shown {
  std::size_t pieces = 0;
  std::uint64_t bytes = 0;
};
std::optional<Shown> show_pieces(cache::FileCache& cache, LargeFile& file,
                                 const mappings::MapRequest& request, long at, std::size_t most) {
  const auto begin = static_cast<std::uint64_t>(request.offset);
  LargeFile::Range range{begin, begin + round_up(request.length)};
  const int flags = (request.flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED;
  std::array<LargeFile::Piece, k_at_once> pieces;
  Shown done;
  int own_fd = -1;
  while (!range.is_empty() && done.pieces < most) {
    const std::size_t count = cache.large().pieces(
        file, range, std::span(pieces).first(std::min(k_at_once, most - done.pieces)));
    if (count != 0 && own_fd < 0) own_fd = region_fd::get(cache.region());
    if (own_fd < 0) break;
    done.pieces += count;
    for (const LargeFile::Piece& piece : std::span(pieces).first(count)) {
      auto* const to = reinterpret_cast<void*>(at + static_cast<long>(piece.at) -
                                               static_cast<long>(request.offset));
      bool is_shown = false;
      if (!mappings::show_piece(cache.region(), own_fd,
                                {to, piece.bytes, request.protection, flags, 0}, piece.in_region,
                                is_shown))
        return {};
      // If a piece cannot be mapped, the program sees the kernel's pages instead.
      if (!is_shown) continue;
      done.bytes += piece.bytes;
      cache.large().note_shown(file, {piece.at, piece.at + piece.bytes});
    }
  }
  return done;
}

// Makes the kernel map the origin's file, and puts the present pieces over parts of this mapping.
long map_pieces(const cache::FdEpoch& epoch, cache::FileCache& cache, LargeFile& file,
                const mappings::MapRequest& request) {
  mappings::NewRow row;
  const int fd = epoch.fd();
  const long at = sys::mmap(request.at, request.length, request.protection,
                            request.flags & ~MAP_POPULATE, fd, request.offset);
  if (!sys::failed(at) && mappings::any())
    mappings::unmapped(reinterpret_cast<void*>(at), request.length);
  // If another thread has replaced the fd, the mapping may show another file. Without a row, no
  // piece is shown.
  if (sys::failed(at) || !row || !epoch.goes_on()) return at;
  const std::size_t most = mappings::take_pieces(k_most_pieces);
  const auto pieces = show_pieces(cache, file, request, at, most);
  const std::size_t shown = pieces.value_or(Shown()).pieces;
  mappings::give_pieces_back(most - shown);
  if (pieces) {
    row.note(static_cast<std::uintptr_t>(at), request, file, shown);
    return at;
  }
  const int flags = (request.flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED;
  return sys::mmap(reinterpret_cast<void*>(at), request.length, request.protection, flags, fd,
                   request.offset);
}

// With a limit of the address space (RLIMIT_AS), the library's own mapping could make the program's
// next mapping fail.
bool may_map_twice() {
  rlimit limit{};
  return !sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_AS, 0, sys::arg(&limit))) &&
         limit.rlim_cur == RLIM_INFINITY;
}

// Returns how many bytes of the range the kernel has in memory (cachestat, Linux 6.5). If the
// kernel does not say, returns the whole length.
std::uint64_t bytes_in_kernel(int fd, const mappings::MapRequest& request) {
  constexpr long k_cachestat = 451;
  const std::uint64_t range[] = {static_cast<std::uint64_t>(request.offset), request.length};
  std::uint64_t pages[5] = {};  // the first is the number of pages in memory
  if (sys::failed(sys::raw(k_cachestat, fd, sys::arg(range), sys::arg(pages), 0)))
    return round_up(request.length);
  return pages[0] * k_page;
}

// Maps the range a second time, for the library, and passes the mapping to the reader threads.
// Returns false if one of these steps fails.
bool map_for_keeping(const cache::FdEpoch& epoch, LargeFile& file,
                     const mappings::MapRequest& request, const void* at, std::uint64_t before) {
  auto own = base::Mapping::private_view(epoch.fd(), static_cast<std::uint64_t>(request.offset),
                                         round_up(request.length));
  if (!own || !epoch.goes_on()) return false;
  // A child must not inherit the mapping. It would keep the file open and its locks alive, and no
  // thread of the child would remove it.
  if (sys::failed(sys::madvise(own->data(), own->size(), MADV_DONTFORK))) return false;
  // An access by the library must not make the kernel read ahead.
  sys::madvise(own->data(), own->size(), MADV_RANDOM);
  auto* const reader = own_threads::reader();
  return reader != nullptr &&
         reader->mapped().add(file, {.own = std::move(*own),
                                     .begin = static_cast<std::uint64_t>(request.offset),
                                     .program_has = at,
                                     .before = before,
                                     .tells_pages = file.tells_pages()});
}

bool may_keep_pages(const LargeFile& file) {
  const auto* const reader = own_threads::reader();
  return reader != nullptr && reader->may_follow_mappings() && may_map_twice() && !file.is_locked();
}

// Copies the pages that the kernel reads for this mapping into the cache, for the next mapping.
void keep_pages(const cache::FdEpoch& epoch, LargeFile& file, const mappings::MapRequest& request,
                const void* at, std::uint64_t before) {
  file.own_mappings().begin();
  if (file.is_locked() || !map_for_keeping(epoch, file, request, at, before))
    file.own_mappings().end();
}

// Has the whole file fetched if the program has read many parts of it through short-lived mappings.
// Meanwhile, a page fault in this mapping reads only one page.
void bring_if_read_all_over(cache::FileCache& cache, LargeFile& file,
                            const mappings::MapRequest& request, void* at) {
  using AllOver = prefetch::MappedFiles::AllOver;
  auto* const reader = own_threads::reader();
  const AllOver all_over = reader != nullptr ? reader->mapped().all_over(file) : AllOver::no;
  if (all_over == AllOver::no || !cache.large().fits(file)) return;
  if (all_over == AllOver::begins) reader->submit_all(file);
  sys::madvise(at, request.length, MADV_RANDOM);
}

// Reads a whole mapping for MAP_POPULATE. The advice makes the threads that follow the mapping read
// ahead of the kernel. The kernel does not report errors of such a read, so this function does not
// either.
void populate(void* at, const mappings::MapRequest& request) {
  constexpr int k_madv_populate_read = 22, k_madv_populate_write = 23;
  mappings::advised(at, request.length, MADV_WILLNEED);
  sys::madvise(
      at, request.length,
      (request.protection & PROT_WRITE) != 0 ? k_madv_populate_write : k_madv_populate_read);
}

}  // namespace

file_calls::Answer map(int fd, const mappings::MapRequest& request) {
  const cache::FdEpoch epoch(fd);
  const KeptFile file(fd);
  cache::FileCache* const cache = process::is_active() ? attachment::cache() : nullptr;
  if (!file || cache == nullptr) return {};
  if (!is_ours(request, file->large->size()) || !cache->large().may_be_shown(*file->large, fd))
    return {};
  const auto begin = static_cast<std::uint64_t>(request.offset),
             end = begin + round_up(request.length);
  // In the meantime, another node may have changed the file, or another thread may have replaced
  // the fd.
  if (shared_model::bring(*cache, file, epoch, {begin, end}) &&
      !(cache->large().look_again(*file->large, fd) && epoch.goes_on()))
    return {};
  std::array<LargeFile::Piece, 1> first;
  LargeFile::Range rest{begin, end};
  const bool is_whole =
      cache->large().pieces(*file->large, rest, first) == 1 && first[0].bytes == end - begin;
  long at = 0;
  if (is_whole) {
    mappings::NewRow row;
    if (!row) return {};
    at = mappings::map_region(cache->region(), request, first[0].in_region);
    if (sys::failed(at)) return at == -ESTALE ? file_calls::Answer() : at;
    row.note(static_cast<std::uintptr_t>(at), request, *file->large, 0);
    cache->large().note_shown(*file->large, {begin, end});
    return at;
  }
  const bool may_keep = may_keep_pages(*file->large);
  // Measured before the mapping exists, so that no page that the kernel reads for the mapping is
  // counted.
  const std::uint64_t before = may_keep ? bytes_in_kernel(fd, request) : 0;
  at = map_pieces(epoch, *cache, *file->large, request);
  if (sys::failed(at) || !epoch.goes_on()) return at;
  cache->large().note_mapping();
  if (may_keep) {
    keep_pages(epoch, *file->large, request, reinterpret_cast<void*>(at), before);
    bring_if_read_all_over(*cache, *file->large, request, reinterpret_cast<void*>(at));
  }
  if ((request.flags & MAP_POPULATE) != 0) populate(reinterpret_cast<void*>(at), request);
  return at;
}

void note_mapping_by_libc() {
  cache::FileCache* const cache = process::is_active() ? attachment::cache() : nullptr;
  if (cache != nullptr) cache->large().note_mapping();
}

file_calls::Answer map_object(OpenFile& file, const mappings::MapRequest& request) {
  cache::FileCache* const cache = process::is_active() ? attachment::cache() : nullptr;
  LargeFile& object = *file.large;
  if (cache == nullptr || !is_ours(request, object.size())) return {};
  const auto begin = static_cast<std::uint64_t>(request.offset);
  const std::uint64_t length = round_up(request.length);
  const int error = cache->large().bring_object(object, begin, begin + length);
  if (error != 0) return error == ENOSPC ? file_calls::Answer() : -error;
  mappings::NewRow row;
  if (!row) return {};
  constexpr int k_placing = MAP_FIXED | MAP_FIXED_NOREPLACE;
  const long at =
      sys::mmap(request.at, length, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (request.flags & k_placing), -1, 0);
  if (sys::failed(at)) return at;
  const std::size_t most = mappings::take_pieces(k_most_pieces);
  const auto shown = show_pieces(*cache, object, request, at, most);
  const std::size_t pieces = shown.value_or(Shown()).pieces;
  mappings::give_pieces_back(most - pieces);
  if (shown && shown->bytes == length) {
    row.note(static_cast<std::uintptr_t>(at), request, object, pieces);
    file.count_in_steps(length);
    return at;
  }
  mappings::give_pieces_back(pieces);
  sys::munmap(reinterpret_cast<void*>(at), length);
  return {};
}

}  // namespace cube::shim::large_maps
