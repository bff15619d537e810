#include "cache/bucket/bucket_mount.h"

#include <atomic>
#include <utility>

#include "cache/base/hash.h"

namespace cube::cache {
namespace {

// This bit marks a minor number that no device of the kernel has, as k_pack_device does for packs.
constexpr std::uint32_t k_no_kernel_device = 1U << 31;

constinit std::atomic<std::uint64_t> g_store{0};

OriginId id_of(std::string_view prefix, std::string_view url) {
  const std::uint64_t words[] = {base::hash_path(prefix), base::hash_path(url),
                                 BucketMount::store()};
  return k_no_kernel_device |
         static_cast<OriginId>(base::hash_bytes(words, sizeof words) & (k_no_kernel_device - 1));
}

}  // namespace

std::uint32_t mark_of_etag(std::string_view etag) {
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"')
    etag = etag.substr(1, etag.size() - 2);
  return static_cast<std::uint32_t>(base::hash_path(etag) & ((1U << 29) - 1));
}

void BucketMount::use_store(std::uint64_t mark) { g_store.store(mark, std::memory_order_relaxed); }
std::uint64_t BucketMount::store() { return g_store.load(std::memory_order_relaxed); }

BucketMount::BucketMount(std::string prefix, std::string url)
    : prefix_(std::move(prefix)),
      url_(std::move(url)),
      id_(id_of(prefix_, url_)),
      url_hash_(base::hash_path(url_)),
      user_(base::sys::geteuid()),
      group_(static_cast<std::uint32_t>(base::sys::raw(SYS_getegid))) {}

FileStat BucketMount::stat_of(std::string_view below) const {
  FileStat stat{};
  const std::uint64_t words[] = {url_hash_, base::hash_path(below)};
  // Programs that read directories mistake an entry with inode 0 for a deleted entry.
  stat.inode = base::hash_bytes(words, sizeof words) | 1;
  stat.user = user_;
  stat.group = group_;
  stat.device_minor = id_;
  stat.block_size = static_cast<std::uint32_t>(k_page);
  stat.mask = STATX_BASIC_STATS;
  return stat;
}

FileStat BucketMount::stat_of_object(std::string_view below, const ObjectInfo& object) const {
  constexpr std::uint64_t k_block = 512;
  FileStat stat = stat_of(below);
  stat.mode = S_IFREG | 0444;
  stat.links = 1;
  stat.size = object.size;
  stat.blocks = (object.size + k_block - 1) / k_block;
  stat.accessed.seconds = stat.modified.seconds = stat.changed.seconds = object.modified;
  stat.changed.nanoseconds = object.etag_mark;
  return stat;
}

FileStat BucketMount::stat_of_directory(std::string_view below) const {
  FileStat stat = stat_of(below);
  stat.mode = S_IFDIR | 0555;
  stat.links = 2;
  return stat;
}

}  // namespace cube::cache
