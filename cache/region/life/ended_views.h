// Frees the bits of views that no process has any longer. When no record has the bit of such a view
// any longer, another view can get the bit. Thread safety: the caller must hold
// RegionHeader::lifecycle, so that no process with such a view can attach in between.
#pragma once

#include <cstdint>

namespace cube::cache {

class Region;

// Whether living_views() counts a view that a living process has left (Region::leave_view). The
// process no longer uses the view, but its threads may still be filling records for the view.
enum class LeftViews : std::uint8_t { have_ended, may_be_filled };
// Returns the bits of all views that living processes have.
std::uint32_t living_views(const Region& region, LeftViews left);
// Clears these bits, which belong to ended views, in all records. The caller must have a process
// slot. False: some records may still have one of the bits.
bool forget_views(Region& region, std::uint32_t bits);

}  // namespace cube::cache
