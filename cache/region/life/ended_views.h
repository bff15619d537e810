// Reclaims the bits of views that no process has any longer. A bit is given to another view once no
// record has it. Thread safety: The caller holds RegionHeader::lifecycle, so that no process with
// such a view can attach in between.
#pragma once

#include <cstdint>

namespace cube::cache {

class Region;

// Whether to count a process that has left its view (Region::leave_view). Such a process does not
// keep the view in use, but its threads may still fill records.
enum class LeftViews : std::uint8_t { have_ended, may_be_filled };
// Returns the bits of views that some process has.
std::uint32_t living_views(const Region& region, LeftViews left);
// Clears these bits, of ended views, in all records. The caller has a process slot. False: some
// record may still have them.
bool forget_views(Region& region, std::uint32_t bits);

}  // namespace cube::cache
