#include "cache/region/ram/ram_tier.h"

#include <cerrno>
#include <climits>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/memory/kernel_page.h"
#include "cache/base/path.h"
#include "cache/base/round.h"
#include "cache/region/lanes.h"
#include "cache/region/ram/ram_window.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

// Whether this is a file of the kernel's tree that still has this name, as far as is known.
bool is_named(const Record& record, std::string_view path) {
  return record.kind == RecordKind::file && record.is_in_kernel() && record.path() == path &&
         !record.has_lost_its_name();
}

}  // namespace

RamTier::RamTier(Region& region)
    : region_(&region), index_(region), ring_(region), metadata_room_(region) {}

Pin RamTier::pin(const RecordPlace& place) const {
  const RegionLayout& layout = region_->layout();
  if (place.segment >= layout.segment_count || place.offset + sizeof(Record) > layout.segment_bytes)
    return {};
  const std::byte* const at = region_->segment(place.segment) + place.offset;
  // Prefetches the header and the path before pinning, because the atomic operation that pins
  // delays later loads.
  for (std::size_t line = 0; line < sizeof(Record) + 2 * 64; line += 64)
    __builtin_prefetch(at + line);
  // seq_cst on both sides: this process first adds its pin, then checks that the segment is still
  // the same. An evictor first marks the segment, then checks the pins. So at least one of the two
  // sees the other.
  std::atomic<std::uint32_t>* const counter = pin_segment(*region_, place.segment);
  const SegmentWord word = SegmentWord::of_word(
      region_->segment_row(place.segment).word.load(std::memory_order_seq_cst));
  const auto& record = *reinterpret_cast<const Record*>(at);
  const bool is_living =
      word.is_readable() && (word.generation & Index::k_generation_mask) == place.generation;
  if (is_living && is_within_region(record)) return {counter, &record};
  counter->fetch_sub(1, std::memory_order_release);
  return {};
}

bool RamTier::is_within_region(const Record& record) const {
  const std::uint64_t room = region_->layout().file_bytes -
                             region_->offset_of(reinterpret_cast<const std::byte*>(&record));
  return record.magic == Record::k_magic && record.path_length < PATH_MAX &&
         record.record_size <= room && record.data_offset <= record.record_size &&
         record.data_offset > sizeof(Record) + record.path_length &&
         record.data_size <= record.record_size - record.data_offset;
}

template <typename Accept>
Pin RamTier::find_first(std::uint64_t hash, Accept&& accept) const {
  Pin found;
  index_.visit(hash, [&](const RecordPlace& place) {
    Pin record = pin(place);
    if (!record || !accept(*record)) return false;
    found = std::move(record);
    return true;
  });
  return found;
}

template <typename Accept>
Pin RamTier::find_if(RecordKind kind, std::string_view path, std::uint64_t hash,
                     Accept&& accept) const {
  return find_first(hash, [&](const Record& record) {
    return record.kind == kind && record.path() == path && !record.is_stale() && accept(record);
  });
}

Pin RamTier::find(std::string_view path, std::uint64_t hash) const {
  return find_of_kind(RecordKind::file, path, hash);
}

Pin RamTier::find_of_kind(RecordKind kind, std::string_view path, std::uint64_t hash) const {
  return find_if(kind, path, hash, [view = region_->own_view()](const Record& record) {
    return record.is_seen_by(view);
  });
}

Pin RamTier::find_of_origin(OriginId origin, RecordKind kind, std::string_view path,
                            std::uint64_t hash) const {
  return find_if(kind, path, hash,
                 [origin](const Record& record) { return record.origin == origin; });
}

Pin RamTier::find_directory(const FileStat& directory) const {
  return find_first(
      base::hash_inode(directory.device(), directory.inode), [&](const Record& record) {
        return record.kind == RecordKind::directory && !record.is_stale() &&
               record.stat.same_file(directory) && record.is_seen_by(region_->own_view());
      });
}

Pin RamTier::find_of_others(std::string_view path, std::uint64_t hash) const {
  return find_if(RecordKind::file, path, hash, [view = region_->own_view()](const Record& record) {
    return !record.is_seen_by(view);
  });
}

Pin RamTier::find_successor(const Record& of) const {
  return find_first(base::hash_path(of.path()), [&](const Record& record) {
    return &record != &of && record.path() == of.path() && record.stat.same_file(of.stat) &&
           record.stat.same_content(of.stat);
  });
}

bool RamTier::has_inode(const FileStat& stat) const {
  return static_cast<bool>(
      find_first(base::hash_inode(stat.device(), stat.inode),
                 [&](const Record& record) { return record.stat.same_file(stat); }));
}

bool RamTier::is_in_index(const Record& record) const {
  return index_.visit(base::hash_inode(record.stat.device(), record.stat.inode),
                      [&](const RecordPlace& place) {
                        return region_->segment(place.segment) + place.offset ==
                               reinterpret_cast<const std::byte*>(&record);
                      });
}

bool RamTier::is_of_own_view(const Record& record) const {
  const bool has_left = region_->own_process().has_left_view.load(std::memory_order_relaxed) != 0;
  const std::uint32_t own = region_->own_view();
  return !has_left && (own == 0 || record.is_seen_by(own));
}

Pin RamTier::find_former(std::string_view path, const FileStat* now) const {
  return find_first(base::hash_path(path), [&](const Record& record) {
    return is_named(record, path) && record.is_physical() && is_of_own_view(record) &&
           (now == nullptr || !now->same_file(record.stat));
  });
}

bool RamTier::has_named(std::string_view path) const {
  return static_cast<bool>(find_first(
      base::hash_path(path), [&](const Record& record) { return is_named(record, path); }));
}

bool RamTier::has_any(std::string_view path, std::uint64_t hash) const {
  return static_cast<bool>(
      find_if(RecordKind::file, path, hash, [](const Record&) { return true; }));
}

Pin RamTier::adopt(const RecordContent& found, std::uint64_t hash) {
  const std::uint32_t view = region_->own_view();
  Pin pin = find_if(RecordKind::file, found.path, hash, [&](const Record& record) {
    return !record.is_seen_by(view) && record.is_physical() == found.physical &&
           record.stat.looks_like(found.stat);
  });
  if (!pin) return pin;
  const bool adopted = change_marks(*pin, [&](Record& r) {
    r.verified_ns.store(found.verified_ns, std::memory_order_relaxed);
    r.views.fetch_or(region_->view_to_show(), std::memory_order_relaxed);
  });
  if (!adopted) pin.release();
  return pin;
}

void RamTier::show_to_own_view(const Record& record) {
  const std::uint32_t view = region_->own_view();
  if (!record.is_seen_by(view))
    change_marks(record, [&](Record& r) {
      r.views.fetch_or(region_->view_to_show(), std::memory_order_relaxed);
    });
}

const Record* RamTier::published_at(std::uint32_t segment, std::uint64_t offset) const {
  const std::byte* const at = region_->segment(segment) + offset;
  // This place may be a hole, or another process may be writing to it. So published_at() reads each
  // field only once, and reads no part of the path outside the region.
  if (reinterpret_cast<const Record*>(at)->magic != Record::k_magic) return nullptr;
  Record head;
  std::memcpy(static_cast<void*>(&head), at, sizeof head);
  const std::uint64_t room = region_->layout().file_bytes - region_->offset_of(at);
  if (head.magic != Record::k_magic || head.path_length >= PATH_MAX ||
      head.path_length >= room - sizeof head)
    return nullptr;
  if (head.record_size > room || head.record_size < sizeof head ||
      head.record_size % k_record_alignment != 0)
    return nullptr;
  const std::uint32_t generation =
      SegmentWord::of_word(region_->segment_row(segment).word.load(std::memory_order_acquire))
          .generation &
      Index::k_generation_mask;
  const std::string_view path(reinterpret_cast<const char*>(at) + sizeof head, head.path_length);
  const bool is_found = index_.visit(base::hash_path(path), [&](const RecordPlace& place) {
    return place.segment == segment && place.offset == offset && place.generation == generation;
  });
  return is_found ? reinterpret_cast<const Record*>(at) : nullptr;
}

bool RamTier::hold(std::uint32_t segment, std::uint32_t& generation, Pin& claim) const {
  Pin own(pin_segment(*region_, segment), nullptr);
  // seq_cst, as in pin().
  const SegmentWord word =
      SegmentWord::of_word(region_->segment_row(segment).word.load(std::memory_order_seq_cst));
  if (!word.is_readable()) return false;
  generation = word.generation;
  claim = std::move(own);
  return true;
}

base::Result<void> RamTier::insert(std::uint64_t hash, const RecordPlace& place,
                                   const Record& record) {
  // A dead record is useless to all processes. A record of another file can have the same hash,
  // because a new file often gets the inode of a removed file.
  const auto is_dead = [&](const Record& old) { return old.has_changed(); };
  const auto with_record = [&](const RecordPlace& other, auto&& says) {
    const Pin old = pin(other);
    return old && says(*old);
  };
  const auto may_replace = [&](const Record& old) {
    if (is_dead(old)) return true;
    return old.path() == record.path() && record.is_mappable() && !old.is_mappable() &&
           old.is_seen_by(record.views.load(std::memory_order_relaxed));
  };
  return index_.insert(
      hash, place, [&](const RecordPlace& other) { return with_record(other, may_replace); },
      [&](const RecordPlace& other) { return with_record(other, is_dead); });
}

bool RamTier::has_many_names(const FileStat& stat) const {
  std::uint32_t names = 0;
  return index_.visit(base::hash_inode(stat.device(), stat.inode), [&](const RecordPlace& place) {
    const Pin record = pin(place);
    if (!record || record->has_changed() || !record->stat.same_file(stat)) return false;
    return ++names == Index::k_most_of_one;
  });
}

bool RamTier::knows_device(std::uint64_t device) const {
  return region_->header().knows_device(device);
}

void RamTier::note_device(std::uint64_t device) {
  for (auto& known : region_->header().devices) {
    // seq_cst, like the swap. If this load sees that another process has already noted the device,
    // this process relies on the swap of that process (knows_device).
    std::uint64_t word = known.load(std::memory_order_seq_cst);
    if (word == 0 && known.compare_exchange_strong(word, device + 1, std::memory_order_seq_cst))
      return;
    if (word == device + 1) return;
  }
}

// Adds this process's view and rights, because this process has found the file and may open the
// record.
RecordContent RamTier::seen_by_us(const RecordContent& content) const {
  RecordContent seen = content;
  seen.views |= region_->view_to_show();
  seen.rights = region_->own_rights();
  return seen;
}

Pin RamTier::write_head(const Reservation& reservation, const RecordContent& content) {
  const Window& window = *reservation.window_;
  const RecordContent seen = seen_by_us(content);
  write_record_head(window.mapping.data() + reservation.plan_.start, reservation.plan_, seen,
                    {.size = content.stat.size});
  return pin_record_of(reservation);
}

Pin RamTier::pin_record_of(const Reservation& reservation) const {
  const std::uint32_t segment = reservation.window_->segment;
  const auto* const record =
      reinterpret_cast<const Record*>(region_->segment(segment) + reservation.plan_.start);
  return reservation.has_claim_ ? reservation.claim_.also_on(record)
                                : Pin(pin_segment(*region_, segment), record);
}

base::Result<Pin> RamTier::publish(Reservation& reservation, const RecordContent& content) {
  const Window& window = *reservation.window_;
  RegionHeader& header = region_->header();
  // Notes the device, the count and a link in the path before the record can be found. So if a
  // writer does not find the note that concerns its change, the change came before this record.
  note_device(content.stat.device());
  header.records.fetch_add(1, std::memory_order_seq_cst);
  if (!content.physical && header.has_link_paths.load(std::memory_order_relaxed) == 0)
    header.has_link_paths.store(1, std::memory_order_seq_cst);
  const RecordContent seen = seen_by_us(content);
  write_record(window.mapping.data(), reservation.plan_, seen);
  SegmentRow& row = region_->segment_row(window.segment);
  const RecordPlace place{window.segment,
                          SegmentWord::of_word(row.word.load(std::memory_order_relaxed)).generation,
                          reservation.plan_.start};
  Pin pin = pin_record_of(reservation);
  // Seals the run before the record can be found. So if a writer dies while its run is open, no
  // process has found the record. The run is pinned before it is sealed, because a sealed run
  // without a pin may be given back to the machine.
  if (window.count > 1) seal_segment(*region_, window.segment);
  if (content.prefetched) ring_.note_published(*pin);
  // Adds the entry for the inode first, because a writer of the file may use another path.
  auto inserted = insert(base::hash_inode(content.stat.device(), content.stat.inode), place, *pin);
  // From here on, another process may have seen the record, so its room can no longer be given
  // back.
  reservation.published_ = static_cast<bool>(inserted) || window.count > 1;
  if (!inserted && window.count > 1) free_run(*region_, window.segment);
  if (inserted) inserted = insert(base::hash_path(content.path), place, *pin);
  if (!inserted) {
    if (content.prefetched) ring_.take_back(*pin);
    header.records.fetch_sub(1, std::memory_order_relaxed);
    note_index_error(inserted.error().value);
    return base::fail(inserted.error().value);
  }
  // Increases the totals before the values of the row. Otherwise the ring, which subtracts a row's
  // values from the totals, could subtract more than the totals contain.
  header.used_bytes.fetch_add(pin->record_size, std::memory_order_relaxed);
  row.used_bytes.fetch_add(pin->record_size, std::memory_order_relaxed);
  row.records.fetch_add(1, std::memory_order_relaxed);
  return pin;
}

bool RamTier::confirm(Reservation&& reservation, const Pin& pin) {
  auto& record =
      *reinterpret_cast<Record*>(reservation.window_->mapping.data() + reservation.plan_.start);
  std::uint32_t unconfirmed = Record::k_unconfirmed;
  // If another thread is changing this process's root or rights, other processes may not find this
  // file under the path. Release: pairs with the acquire in Record::is_stale.
  const bool confirmed =
      !Region::is_leaving_view() &&
      record.stale.compare_exchange_strong(unconfirmed, 0, std::memory_order_acq_rel);
  if (!confirmed && pin->is_prefetched()) ring_.take_back(*pin);
  // Counts the record as ready for the disk while the record is still pinned.
  if (confirmed && !pin->is_from_disk())
    region_->segment_row(reservation.window_->segment)
        .fresh.fetch_add(1, std::memory_order_seq_cst);
  reservation.window_.reset();
  return confirmed && !pin->is_stale();
}

template <typename Change>
bool RamTier::change_marks(const Record& record, Change&& change) const {
  const std::uint64_t at = region_->offset_in_data(&record);
  // Maps only one page, because the marks are in the record's first cache line, which never crosses
  // a page boundary.
  const std::uint64_t page_bytes = base::kernel_page(), page = base::round_down(at, page_bytes);
  const auto mapping = region_->window(page, page_bytes);
  std::byte* const there = mapping ? mapping->data() + (at - page) : region_->writable_at(at);
  if (there == nullptr) return false;
  change(*reinterpret_cast<Record*>(there));
  return true;
}

bool RamTier::mark_changed(const Record& record, std::uint32_t how) {
  std::uint32_t before = record.stale.load(std::memory_order_acquire);
  const bool is_marked = (before & Record::k_changed) != 0;
  // If the file is gone, its inode may belong to another file. The change is then a change of the
  // other file.
  const bool is_gone = (before & Record::k_unlinked) != 0;
  const std::uint32_t more = is_gone ? how & ~Record::k_in_place : how;
  if (is_marked && (before & more) == more) return false;
  const auto mark = [&](Record& r) {
    std::uint32_t after = 0;
    do {
      after = (before & ~Record::k_unconfirmed) | Record::k_changed | more;
      // Release: pairs with the acquire in Record::is_stale.
    } while (!r.stale.compare_exchange_weak(before, after, std::memory_order_acq_rel));
  };
  if (!change_marks(record, mark)) {
    region_->doubt_all();
    return false;
  }
  if (is_marked) return false;
  // The record will not be opened, so the ring need not wait for an open.
  if (record.is_prefetched()) ring_.take_back(record);
  return true;
}

template <typename MarksOf>
std::size_t RamTier::mark_each(std::uint64_t hash, MarksOf&& marks_of) {
  std::size_t marked = 0;
  index_.visit(hash, [&](const RecordPlace& place) {
    const Pin record = pin(place);
    const std::uint32_t how = record ? marks_of(*record) : 0;
    if (how != 0 && mark_changed(*record, how)) ++marked;
    return false;
  });
  return marked;
}

std::size_t RamTier::mark_stale(std::string_view path, std::uint32_t how, const FileStat* now) {
  return mark_each(base::hash_path(path), [&](const Record& record) -> std::uint32_t {
    // If the record was marked before, its path may lead to another file by now.
    if (record.path() != path || record.has_changed()) return 0;
    if (now != nullptr && now->is_unchanged_since(record.stat)) return 0;
    // If the path goes through a link, the file may still exist, because perhaps only the link was
    // removed. In another view, the path can lead to another file, which has not been removed.
    return record.is_physical() && is_of_own_view(record) ? how : how & ~Record::k_unlinked;
  });
}

std::size_t RamTier::mark_stale_inode(const FileStat& stat, std::uint32_t how,
                                      std::uint64_t before_ns) {
  return mark_each(base::hash_inode(stat.device(), stat.inode), [&](const Record& record) {
    const bool is_older = record.verified_ns.load(std::memory_order_relaxed) < before_ns;
    return record.stat.same_file(stat) && is_older ? how : 0;
  });
}

std::size_t RamTier::mark_stale_tree(std::string_view directory) {
  std::size_t marked = 0;
  index_.visit_all([&](const RecordPlace& place) {
    const Pin record = pin(place);
    if (!record || record->has_changed()) return;
    const bool below = base::is_below(record->path(), directory);
    // A path that goes through a link can lead below the directory without containing the
    // directory's name.
    if (!below && record->is_physical()) return;
    if (mark_changed(*record, Record::k_changed)) ++marked;
  });
  return marked;
}

void RamTier::mark_record_stale(const Record& record, std::uint32_t how) {
  mark_changed(record, how);
}

void RamTier::mark_verified(const Record& record, std::uint64_t now_ns) {
  change_marks(record, [&](Record& r) { r.verified_ns.store(now_ns, std::memory_order_relaxed); });
}

RamTier::PlaceInRegion RamTier::place_of(const Record& record) const {
  PlaceInRegion place;
  const std::uint64_t at = region_->offset_in_data(&record);
  place.segment = ring_.segment_of(record);
  place.generation =
      SegmentWord::of_word(region_->segment_row(place.segment).word.load(std::memory_order_relaxed))
          .generation;
  place.offset = at % region_->layout().segment_bytes;
  place.bytes = record.record_size;
  place.is_in_ring = ring_.holds(record);
  return place;
}

}  // namespace cube::cache
