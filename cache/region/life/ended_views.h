// Frees the bits of views that no process has any longer. A bit is given to another view when no
// record has the bit any longer. Thread safety: the caller must hold RegionHeader::lifecycle, so
// that no process with such a view can attach in between.
#pragma once

#include <cstdint>

namespace cube::cache {

class Region;

// How to treat the view of a process that has left it (Region::leave_view). Such a process no
// longer uses the view, but its threads may still fill records.
enum class LeftViews : std::uint8_t { have_ended, may_be_filled };
// Returns the bits of the views that processes have.
std::uint32_t living_views(const Region& region, LeftViews left);
// Clears these bits, which belong to ended views, in all records. The caller must have a process
// slot. False: some record may still have a bit.
bool forget_views(Region& region, std::uint32_t bits);

}  // namespace cube::cache
