#include "cache/origin/object_origin.h"

#include <cerrno>

#include "cache/bucket/bucket_listing.h"

namespace cube::cache {
namespace {

class OpenedOfBucket final : public Opened {
 public:
  explicit OpenedOfBucket(const Bucket& bucket) : bucket_(bucket) {}

  base::Result<void> open(const OriginOpen& wish) {
    key_ = wish.key;
    may_fill_ = wish.may_fill;
    const auto stat = bucket_.stat(wish.key);
    if (!stat) return base::fail(stat.error().value);
    file_ = {.stat = *stat,
             .is_physical = true,
             .origin = bucket_.mount().origin_id(),
             .is_immutable = true,
             .comes_in_blocks = true,
             .can_fill_ahead = true};
    if (!stat->is_regular()) return base::fail(EISDIR);
    if (!wish.may_fill || stat->size > wish.most) return {};
    const int error =
        wish.is_ahead ? bucket_.fetch_ahead(wish.key, *stat) : bucket_.fetch(wish.key, *stat);
    file_.is_in_ram = error == 0;
    // If RAM has no room, the program gets a copy of the file.
    return error == 0 || error == EFBIG || error == ENOSPC ? base::Result<void>()
                                                           : base::fail(error);
  }

  base::Result<void> read_whole(std::byte* to) override {
    const auto copy = bucket_.copy(key_, file_.stat, O_CLOEXEC, /*is_prefetch=*/!may_fill_);
    if (!copy) return base::fail(copy.error().value);
    std::uint64_t at = 0;
    while (at < file_.stat.size) {
      const long n = base::sys::pread(copy->get(), to + at, file_.stat.size - at,
                                      static_cast<std::int64_t>(at));
      if (n == -EINTR) continue;
      if (base::sys::failed(n)) return base::fail(static_cast<int>(-n));
      if (n == 0) break;
      at += static_cast<std::uint64_t>(n);
    }
    struct ::stat st {};
    const bool is_whole = at == file_.stat.size &&
                          !base::sys::failed(base::sys::fstat(copy->get(), &st)) &&
                          static_cast<std::uint64_t>(st.st_size) == file_.stat.size;
    return is_whole ? base::Result<void>() : base::fail(ESTALE);
  }
  bool is_unchanged() override { return true; }
  base::Result<int> hand_over(int flags) override {
    auto copy = bucket_.copy(key_, file_.stat, flags, /*is_prefetch=*/false);
    if (!copy) return base::fail(copy.error().value);
    return copy->release();
  }

 private:
  const Bucket& bucket_;
  std::string_view key_;
  bool may_fill_ = false;
};

}  // namespace

ObjectOrigin::ObjectOrigin(const Bucket& bucket)
    : Origin(bucket.mount().origin_id(), {.is_immutable = false,
                                          .knows_all_names = true,
                                          .has_kernel_fd = false,
                                          .is_whole_in_one_read = true,
                                          .is_counted_elsewhere = true}),
      bucket_(&bucket) {}

base::Result<FileStat> ObjectOrigin::stat(std::string_view key, const char* /*path*/) const {
  return bucket_->stat(key);
}

base::Result<FileStat> ObjectOrigin::revalidate(std::string_view key, const char* /*path*/,
                                                const FileStat& known) const {
  return bucket_->revalidate(key, known);
}

base::Result<void> ObjectOrigin::open(const OriginOpen& wish, OpenedPlace& place) const {
  return place.make<OpenedOfBucket>(*bucket_).open(wish);
}

int ObjectOrigin::fetch_blocks(std::string_view key, const FileStat& stat, std::uint64_t begin,
                               std::uint64_t end, std::uint64_t ahead_end) const {
  return bucket_->fetch_blocks(key, stat, begin, end, ahead_end);
}

base::Result<base::UniqueFd> ObjectOrigin::copy_of(std::string_view key, const FileStat& stat,
                                                   int flags) const {
  return bucket_->copy(key, stat, flags, /*is_prefetch=*/false, Bucket::Version::of_stat);
}

base::Result<Listing*> ObjectOrigin::list(std::string_view key) const {
  return list_bucket(*bucket_, key, /*with_names=*/true);
}

}  // namespace cube::cache
