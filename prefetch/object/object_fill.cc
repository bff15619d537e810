#include "prefetch/object/object_fill.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "cache/base/hash.h"
#include "cache/bucket/object_names.h"

namespace cube::prefetch {

ObjectFill::ObjectFill(cache::CacheParts& parts, cache::BucketMount mount, std::string below,
                       cache::Lane lane)
    : parts_(parts),
      mount_(std::move(mount)),
      below_(std::move(below)),
      key_(below_.empty() ? mount_.prefix() : mount_.prefix() + "/" + below_),
      lane_(lane) {
  fill_ = std::make_unique<cache::RecordFill>(parts_.ram, parts_.rules, key_, lane_);
}

int ObjectFill::prepare(const cache::ObjectInfo& object) {
  if (object.size > parts_.rules.max_file) return EFBIG;
  if (accepted_ == object) return 0;
  if (accepted_) fill_ = std::make_unique<cache::RecordFill>(parts_.ram, parts_.rules, key_, lane_);
  accepted_.reset();
  switch (fill_->accept({.stat = mount_.stat_of_object(below_, object),
                         .is_physical = true,
                         .origin = mount_.origin_id(),
                         .is_immutable = true})) {
    case cache::RecordFill::Next::refuse: return ENOSPC;
    case cache::RecordFill::Next::done: is_there_ = true; return EEXIST;
    case cache::RecordFill::Next::read: break;
  }
  accepted_ = object;
  return 0;
}

int ObjectFill::begin(const s3::Outcome& head, s3::Transfer::Room& room) {
  const cache::ObjectInfo object{head.size, head.modified, cache::mark_of_etag(head.etag)};
  forget_listing_unless(object);
  const int error = prepare(object);
  if (error == 0) room = {fill_->room(), head.size};
  return error;
}

// Marks the listing stale if the object has changed since it was listed, because stat() and fstat()
// should agree.
void ObjectFill::forget_listing_unless(const cache::ObjectInfo& object) const {
  const auto [directory, name] = base::split_path(key_);
  const cache::Pin listing = parts_.ram.find_of_origin(
      mount_.origin_id(), cache::RecordKind::directory, directory, base::hash_path(directory));
  const auto names = listing ? cache::ObjectNames::of(*listing) : std::nullopt;
  const auto entry = names ? names->find(name) : std::nullopt;
  // If the sizes are equal, the object has changed only if both ETag and time differ: in a store's
  // listings, either the ETag or the fraction of the second can differ for the same object.
  const bool has_changed =
      entry && (entry->object.size != object.size || (entry->object.etag_mark != object.etag_mark &&
                                                      entry->object.modified != object.modified));
  if (has_changed) parts_.ram.mark_record_stale(*listing);
}

int ObjectFill::end(const s3::Outcome& outcome) {
  if (is_there_) return 0;
  if (outcome.error != 0) return outcome.error;
  // If the body has an unknown length or is empty, begin() was not called for it. Then the room can
  // have bytes of an attempt that failed.
  if (!outcome.is_size_known || outcome.size == 0) {
    s3::Outcome head;
    head.size = outcome.http.body.size();
    head.modified = outcome.modified;
    head.etag = outcome.etag;
    s3::Transfer::Room room;
    const int error = begin(head, room);
    if (is_there_) return 0;
    if (error != 0) return error;
    if (room.bytes != 0) std::memcpy(room.at, outcome.http.body.data(), room.bytes);
  }
  return fill_->publish() ? 0 : ENOSPC;
}

}  // namespace cube::prefetch
