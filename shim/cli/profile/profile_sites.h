// The call sites of all processes of a profile, with the names of functions. Calls with the same
// stack of functions belong to the same site. Thread safety: one thread.
#pragma once

#include <string>
#include <vector>

#include "shim/cli/profile/profile_raw.h"

namespace cube::cli {

struct ProfileFrame {
  std::string function, file;  // `file` of a native function is its library
  std::uint32_t line = 0;      // the first line of a Python function; 0 for a native function
  bool is_python() const { return line != 0; }
};

struct ProfileSite {
  std::size_t kind = 0;
  // Outermost first. A site with Python functions has no frames of the interpreter.
  std::vector<ProfileFrame> frames;
  std::string example;  // a path
  std::array<std::uint64_t, shim::profile::k_site_counts> counts{};
  std::array<std::uint64_t, shim::profile::k_latency_buckets> latency{};
  std::array<std::uint64_t, shim::profile::k_open_counts> opens{};
};

// A bin of the time line. On average, busy_ns / (width of the bin) calls are in flight in it.
struct ProfileBin {
  std::uint64_t at_ns = 0, busy_ns = 0, calls = 0;
};

// The profiler's own cost in all threads, estimated from the calls whose cost it measured.
struct ProfileCost {
  std::uint64_t call_ns = 0;  // the time in calls, without stack walks
  std::uint64_t stacks = 0, stack_ns = 0;
  std::uint64_t start_and_end_ns = 0;  // of all processes
  std::uint64_t total_ns() const { return call_ns + stack_ns + start_and_end_ns; }
};

struct Profile {
  std::uint64_t start_ns = 0, end_ns = 0, processes = 0, cut_off = 0, bad_lines = 0,
                bin_width_ns = 0;
  bool observes = false;
  ProfileCost cost;
  std::vector<ProfileSite> sites;  // the site with the most time at the origin comes first
  std::vector<ProfileBin> bins;    // the bins that have calls, in the order of time
  std::array<std::uint64_t, shim::profile::k_drop_counts> dropped{};

  std::uint64_t total(std::size_t count) const;
};

Profile make_profile(const std::vector<RawFile>& files);

// Returns a text such as "read_image (train.py:12)" or "cv::imread (libopencv_imgcodecs.so.406)".
std::string text_of_frame(const ProfileFrame& frame);
// Returns the innermost Python function of the program, not of a library; null if there is none.
const ProfileFrame* own_function(const ProfileSite& site);
// Returns the innermost Python function and at most two of its callers: "open (PIL/Image.py:3200) <
// load (train.py:8)". own_function() is always among these functions; ".." stands for omitted
// functions before it. For a site without Python functions, returns native functions.
std::string text_of_site(const ProfileSite& site);
// For a site with Python functions, returns the innermost native function outside libc, or its
// library if the function has no name. Otherwise empty.
std::string native_leaf(const ProfileSite& site);

}  // namespace cube::cli
