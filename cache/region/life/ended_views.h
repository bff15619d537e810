// Views that no process has any more. Their bits are given to others once no record has them.
// Thread safety: RegionHeader::lifecycle is held, so that no process can come with such a view
// meanwhile.
#pragma once

#include <cstdint>

namespace cube::cache {

class Region;

// Whether a process that has left its view (Region::leave_view) counts: it proves nothing of the
// view, but its threads may still fill records.
enum class LeftViews : std::uint8_t { have_ended, may_be_filled };
// The bits of views that some process has.
std::uint32_t living_views(const Region& region, LeftViews left);
// Takes these bits, of ended views, from all records. The caller has a process slot. False: some
// record may still have them.
bool forget_views(Region& region, std::uint32_t bits);

}  // namespace cube::cache
