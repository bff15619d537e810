#include "cache/origin/pack_origin.h"

#include <cerrno>
#include <optional>

#include "cache/base/memory/copy_bytes.h"
#include "cache/pack/make/pack_copy.h"
#include "cache/pack/pack_listing.h"
#include "cache/pack/pack_neighbours.h"

namespace cube::cache {
namespace {

using base::Counter;

class OpenedOfPack final : public Opened {
 public:
  explicit OpenedOfPack(const PackMount& pack) : pack_(pack) {}

  base::Result<void> read(const OriginOpen& wish, base::Scratch& scratch) {
    if (!wish.together.is_empty()) return read_together(wish, scratch);
    const auto reach = wish.with_neighbours ? PackMount::Reach::window : PackMount::Reach::record;
    const auto read = pack_.read(wish.key, wish.most, scratch, content_, reach);
    file_ = as_file(content_);
    if (wish.stats != nullptr && (read || content_.window != nullptr)) {
      wish.stats->count(Counter::origin_reads);
      wish.stats->count(Counter::origin_bytes,
                        content_.window != nullptr ? content_.span.bytes : content_.stat.size);
    }
    return read;
  }

  base::Result<void> read_whole(std::byte* to) override {
    if (content_.data == nullptr) return base::fail(EFBIG);
    base::copy_bytes(to, content_.data, content_.stat.size);
    return {};
  }
  std::optional<std::uint64_t> data_hash() const override { return content_.entry.data_hash; }
  bool is_unchanged() override { return true; }
  base::Result<int> hand_over(int flags) override {
    auto copy = copy_of_packed(pack_, content_, flags);
    if (!copy) return base::fail(copy.error().value);
    return copy->release();
  }

  bool move_to(std::string_view key, const OriginSpan& place) override {
    const auto taken = pack_.take(key, {place.begin, place.bytes}, content_);
    file_ = as_file(content_);
    return static_cast<bool>(taken);
  }
  bool next_neighbour(Neighbour& neighbour) override {
    if (content_.window == nullptr) return false;
    if (!neighbours_) neighbours_.emplace(pack_, content_);
    PackMount::Content found;
    if (!neighbours_->next(neighbour.key, found)) return false;
    neighbour.file = as_file(found);
    neighbour.data = found.data;
    neighbour.data_hash = found.entry.data_hash;
    return true;
  }

 private:
  base::Result<void> read_together(const OriginOpen& wish, base::Scratch& scratch) {
    const auto read =
        pack_.read_span({wish.together.begin, wish.together.bytes}, scratch, content_);
    if (wish.stats != nullptr && read) {
      wish.stats->count(Counter::origin_reads);
      wish.stats->count(Counter::origin_bytes, wish.together.bytes);
    }
    if (!read) return read;
    if (!move_to(wish.key, wish.place)) return base::fail(ESTALE);
    return {};
  }
  FileAtOrigin as_file(const PackMount::Content& content) const {
    return {.stat = content.stat,
            .is_physical = content.physical,
            .origin = pack_.device_minor(),
            .is_immutable = true};
  }

  const PackMount& pack_;
  PackMount::Content content_;
  std::optional<PackNeighbours> neighbours_;
};

}  // namespace

PackOrigin::PackOrigin(const PackMount& pack)
    : Origin(pack.device_minor(), {.is_immutable = true,
                                   .knows_all_names = false,
                                   .has_kernel_fd = false,
                                   .is_whole_in_one_read = true}),
      pack_(&pack) {}

base::Result<FileStat> PackOrigin::stat(std::string_view key, const char* /*path*/) const {
  PackMount::FoundName found;
  const auto there = pack_->find(key, /*follows=*/true, found);
  if (!there) return base::fail(there.error().value);
  return found.entry.stat;
}

base::Result<void> PackOrigin::open(const OriginOpen& wish, OpenedPlace& place) const {
  return place.make<OpenedOfPack>(*pack_).read(wish, place.scratch());
}

OriginSpan PackOrigin::place_of(std::string_view key) const {
  const PackSpan place = pack_->place_of(key);
  return {.origin = id(), .begin = place.begin, .bytes = place.bytes};
}

base::Result<Listing*> PackOrigin::list(std::string_view key) const {
  return list_packed(*pack_, key, /*follows=*/true, /*with_names=*/true);
}

}  // namespace cube::cache
