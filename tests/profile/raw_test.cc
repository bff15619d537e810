#include "shim/cli/profile/profile_raw.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "shim/cli/profile/function_name.h"
#include "shim/cli/profile/profile_sites.h"

namespace cube::cli {
namespace {

namespace profile = shim::profile;

std::string counts(std::size_t n, const std::string& first) {
  std::string text = first;
  for (std::size_t i = 1; i < n; ++i) text += ",0";
  return text;
}

std::string site(const std::string& kind, const std::string& python,
                 const std::string& calls = "3") {
  return "site\t1\t" + kind + "\t/data/a\\tb\t1005\t" + python + "\t" +
         counts(profile::k_site_counts, calls) + "\t" + counts(profile::k_latency_buckets, "3") +
         "\t" + counts(profile::k_open_counts, "2") + "\n";
}

const std::string k_head = "cubeshim-profile\t3\t42\t1\t1000\t2000\t1\t0\n";
const std::string k_code = "code\t7\t12\tload\t/job/train.py\n";
const std::string k_end = "dropped\t0,0,0,0,1\nend\n";

TEST(RawProfile, SectionIsReadBack) {
  const RawFile file = parse_raw(k_head + "map\t1000-2000 r-xp 00000500 08:01 99   /lib/a b.so\n" +
                                 k_code + site("open", "7") + "bin\t0\t5\t600\t2\n" + k_end);
  ASSERT_EQ(file.sections.size(), 1U);
  EXPECT_EQ(file.bad_lines, 0U);
  const RawSection& section = file.sections[0];
  EXPECT_EQ(section.pid, 42U);
  EXPECT_TRUE(section.is_whole);
  EXPECT_EQ(section.maps.at(0).path, "/lib/a b.so");
  EXPECT_EQ(section.maps.at(0).offset, 0x500U);
  EXPECT_EQ(section.codes.at(7).function, "load");
  EXPECT_EQ(section.sites.at(0).example, "/data/a\tb");
  EXPECT_EQ(section.sites.at(0).native.at(0), 0x1005U);
  EXPECT_EQ(section.sites.at(0).counts[profile::k_calls], 3U);
  EXPECT_EQ(section.sites.at(0).opens[profile::k_closed], 2U);
  EXPECT_EQ(section.bins.at(0).busy_ns, 600U);
  EXPECT_EQ(section.dropped[profile::k_no_native], 1U);
}

TEST(RawProfile, UseOfAFileIsReadBack) {
  const std::string line = "file\tff\t" + counts(profile::k_file_counts, "5") + "\n";
  const RawFile file = parse_raw(k_head + line + k_end);
  EXPECT_EQ(file.bad_lines, 0U);
  EXPECT_EQ(file.sections.at(0).files.at(0).path_hash, 255U);
  EXPECT_EQ(file.sections.at(0).files.at(0).counts[profile::k_first_ns], 5U);
  EXPECT_EQ(parse_raw(k_head + "file\tff\t5\n" + k_end).bad_lines, 1U);
}

TEST(RawProfile, FileTruncatedAnywhereIsReadUpToTheCut) {
  const std::string whole = k_head + k_code + site("open", "7") + k_end;
  for (std::size_t n = 0; n < whole.size() - 4; ++n) {
    const RawFile file = parse_raw(whole.substr(0, n));
    for (const auto& section : file.sections) EXPECT_FALSE(section.is_whole) << n;
    EXPECT_LE(file.bad_lines, 1U) << n;
  }
}

TEST(RawProfile, ExecBeginsASeparateSection) {
  const RawFile file =
      parse_raw(k_head + site("open", "-") + k_end + k_head + site("read", "-") + k_end);
  ASSERT_EQ(file.sections.size(), 2U);
  EXPECT_EQ(file.sections[1].sites.size(), 1U);
}

TEST(RawProfile, ForgedCountsAreCutOrRefused) {
  const RawFile huge = parse_raw(k_head + site("read", "-", "18446744073709551615") +
                                 site("read", "-", "18446744073709551615") + k_end);
  ASSERT_EQ(huge.sections.at(0).sites.size(), 2U);
  const Profile made = make_profile({huge});
  EXPECT_EQ(made.total(profile::k_calls), 2ULL << 53);
  for (const char* const wrong : {"99999999999999999999", "-1", "x", "", "1,2"})
    EXPECT_EQ(parse_raw(k_head + site("read", "-", wrong)).bad_lines, 1U) << wrong;
}

TEST(RawProfile, LinesThatAreNotOursAreCounted) {
  const std::string lines[] = {"site\t1\tfly\t\t-\t-\t0\t0\t-\n",
                               "code\tx\t1\tf\tf\n",
                               "bin\t99\t0\t0\t0\n",
                               "map\tnonsense\n",
                               "map\t2000-1000 r-xp 0 0 0 /x\n",
                               "dropped\t1\n",
                               std::string(100, '\t') + "\n",
                               "\n",
                               std::string("\0\0\n", 3)};
  for (const auto& line : lines)
    EXPECT_EQ(parse_raw(k_head + line + "end\n").bad_lines, 1U) << line;
}

TEST(RawProfile, OtherVersionsAndWrongHeadsAreLeftOutAsAWhole) {
  for (const char* const head :
       {"cubeshim-profile\t1\t42\t1\t1000\t2000\t1\t0\n",
        "cubeshim-profile\t3\t42\t1\t3000\t2000\t1\t0\n", "cubeshim-profile\n"}) {
    const RawFile file = parse_raw(head + site("open", "-") + k_end);
    EXPECT_TRUE(file.sections.empty()) << head;
    EXPECT_EQ(file.bad_lines, 4U) << head;
  }
}

TEST(RawProfile, StackLongerThanTheProfilerWritesIsRefused) {
  std::string python = "7";
  for (std::size_t i = 1; i < profile::k_most_python; ++i) python += ",7";
  EXPECT_EQ(parse_raw(k_head + site("read", python)).bad_lines, 0U);
  EXPECT_EQ(parse_raw(k_head + site("read", python + ",7")).bad_lines, 1U);
}

// Many short processes, one after another, would fill a page if each had its own bins.
TEST(RawProfile, TimeLineOfManyProcessesHasAsManyBinsAsThatOfOne) {
  const auto process = [](std::uint64_t begin) {
    std::string text = "cubeshim-profile\t3\t43\t42\t" + std::to_string(begin) + "\t" +
                       std::to_string(begin + 1000) + "\t1\t0\n";
    for (std::size_t level = 0; level < profile::k_bin_levels; ++level)
      text += "bin\t" + std::to_string(level) + "\t" +
              std::to_string(begin / profile::bin_width(level)) + "\t10\t1\n";
    return parse_raw(text + site("open", "-") + k_end);
  };
  std::vector<RawFile> files;
  constexpr std::uint64_t k_minute = 60'000'000'000;
  for (std::uint64_t i = 0; i < 3000; ++i) files.push_back(process(i * k_minute / 10));
  const Profile made = make_profile(files);
  EXPECT_LE(made.bins.size(), profile::k_bins);
  EXPECT_GT(made.bins.size(), profile::k_bins / 8);
  std::uint64_t calls = 0;
  for (const auto& bin : made.bins) calls += bin.calls;
  EXPECT_EQ(calls, 3000U);
}

TEST(RawProfile, SameFunctionOfTwoProcessesIsOneSite) {
  const std::string other_number = "code\t9\t12\tload\t/job/train.py\n";
  const RawFile one = parse_raw(k_head + k_code + site("open", "7") + k_end);
  const RawFile other = parse_raw("cubeshim-profile\t3\t43\t42\t1500\t3000\t1\t0\n" + other_number +
                                  site("open", "9") + k_end);
  const Profile made = make_profile({one, other});
  EXPECT_EQ(made.processes, 2U);
  EXPECT_EQ(made.end_ns - made.start_ns, 2000U) << "from the first start to the last end";
  ASSERT_EQ(made.sites.size(), 1U);
  EXPECT_EQ(made.sites[0].counts[profile::k_calls], 6U);
  EXPECT_EQ(text_of_site(made.sites[0]), "load (job/train.py:12)");
}

TEST(RawProfile, UnknownFunctionsAndAddressesAreAccepted) {
  const Profile made = make_profile({parse_raw(k_head + site("open", "1234") + k_end)});
  ASSERT_EQ(made.sites.size(), 1U);
  EXPECT_EQ(text_of_site(made.sites[0]), "0x1005");
}

TEST(RawProfile, CostIsExtrapolatedFromTimedCalls) {
  // 10 samples, 8 of them timed, of 100 ns each; 3 stacks, 2 timed, of 1,000 ns each; a clock of 20
  // ns.
  const std::string cost = "cost\t10,8,800,3,2,2000,20,500,70\n";
  const Profile one = make_profile({parse_raw(k_head + cost + site("read", "-") + k_end)});
  EXPECT_EQ(one.cost.call_ns, 16U * 10 * (100 + 20));
  EXPECT_EQ(one.cost.stacks, 3U);
  EXPECT_EQ(one.cost.stack_ns, 3U * (1000 + 2 * 20));
  EXPECT_EQ(one.cost.start_and_end_ns, 570U);
  EXPECT_EQ(one.cost.total_ns(), one.cost.call_ns + one.cost.stack_ns + 570);
  const RawFile file = parse_raw(k_head + cost + k_end);
  EXPECT_EQ(make_profile({file, file}).cost.total_ns(), 2 * one.cost.total_ns())
      << "of two processes";
  const std::string forged =
      "cost\t9007199254740992,1,9007199254740992,9007199254740992,1,9007199254740992,"
      "9007199254740992,0,0\n";
  EXPECT_EQ(make_profile({parse_raw(k_head + forged + k_end)}).cost.call_ns, 1ULL << 53);
  EXPECT_EQ(make_profile({parse_raw(k_head + "cost\t1,0,0,1,0,0,0,0,0\n" + k_end)}).cost.total_ns(),
            0U);
}

ProfileSite with_frames(std::vector<ProfileFrame> frames) {
  ProfileSite made;
  made.frames = std::move(frames);
  return made;
}

TEST(ProfileSites, ProgramFunctionIsShownAfterThoseOfALibrary) {
  const ProfileFrame main{"main", "/job/train.py", 1}, load{"load", "/job/train.py", 5};
  const ProfileFrame open{"open", "/usr/lib/python3.11/zipfile.py", 7},
      read{"read", "/v/lib/python3.12/site-packages/w/r.py", 8};
  EXPECT_EQ(text_of_site(with_frames({main, load, open, read, read})),
            "read (w/r.py:8) < read (w/r.py:8) .. load (job/train.py:5)");
  EXPECT_EQ(text_of_site(with_frames({main, load, open, read})),
            "read (w/r.py:8) < open (python3.11/zipfile.py:7) < load (job/train.py:5)");
  EXPECT_EQ(text_of_site(with_frames({open, read, read, read})),
            "read (w/r.py:8) < read (w/r.py:8) < read (w/r.py:8)");
}

// The functions on the native stack of a site, innermost last, with these Python functions.
std::string natives_of(const std::string& addresses, const std::string& python) {
  std::string maps;
  int page = 1;
  for (const char* const path : {"/u/python3.11", "/u/libarrow.so", "/u/libc.so.6"}) {
    maps += fmt::format("map\t{0}000-{0}fff r-xp 00000000 08:01 99   {1}\n", page, path);
    ++page;
  }
  std::string line = site("read", python);
  line.replace(line.find("1005"), 4, addresses);
  const Profile made = make_profile({parse_raw(k_head + maps + k_code + line + k_end)});
  std::string text;
  for (const auto& frame : made.sites.at(0).frames) text += frame.file + " ";
  return text;
}

TEST(ProfileSites, InterpreterIsShownOnlyIfNothingElseCalled) {
  EXPECT_EQ(natives_of("3005,1005,2005,3006", "-"), "libc.so.6 libarrow.so ")
      << "a library's thread that calls a file of Python's";
  EXPECT_EQ(natives_of("3005,2005,1005,3006", "7"), "/job/train.py libarrow.so libc.so.6 ");
  EXPECT_EQ(natives_of("3005,1005,3006", "-"), "libc.so.6 python3.11 libc.so.6 ");
  EXPECT_EQ(natives_of("3005,2005,3006", "-"), "libc.so.6 libarrow.so libc.so.6 ");
}

TEST(ProfileSites, CallAtTheEndOfALibraryBelongsToIt) {
  EXPECT_EQ(natives_of("2fff", "-"), "libarrow.so ");
}

TEST(ProfileSites, NativeFunctionWithoutANameIsItsLibrary) {
  EXPECT_EQ(native_leaf(with_frames(
                {{"load", "train.py", 5}, {"+0x45", "libx.so", 0}, {"read", "libc.so.6", 0}})),
            "libx.so");
  EXPECT_EQ(native_leaf(with_frames(
                {{"load", "train.py", 5}, {"f", "libx.so", 0}, {"+0x45", "libx.so", 0}})),
            "f (libx.so)");
  EXPECT_EQ(native_leaf(with_frames({{"main", "grep", 0}, {"+0x45", "grep", 0}})), "")
      << "the site is called so";
}

TEST(FunctionNames, ArgumentsAndResultsAreLeftOut) {
  const std::pair<const char*, const char*> names[] = {
      {"cv::imread(std::string const&, int)", "cv::imread"},
      {"void a::f<int>(int) const", "a::f<int>"},
      {"decltype ((fp)()) arrow::py::Call<arrow::py::File::Read(long, "
       "void*)::{lambda()#1}>(arrow::py::File&&)",
       "arrow::py::Call<..>"},
      {"arrow::internal::FnOnce<void ()>::FnImpl<std::_Bind<name (argument)> >::invoke()",
       "arrow::internal::FnOnce<void ()>::FnImpl<..>::invoke"},
      {"a::f(int)::{lambda(int)#1}::operator()(int) const", "a::f::{lambda}::operator()"},
      {"(anonymous namespace)::f(int) [clone .cold]", "(anonymous namespace)::f"},
      {"A::operator<<(int)", "A::operator<<"},
      {"A::operator unsigned long() const", "A::operator unsigned long"},
      {"my_operator(int)", "my_operator"},
      {"f<(", "f<("},
      {"", ""}};
  for (const auto& [demangled, name] : names) EXPECT_EQ(plain_function(demangled), name);
  EXPECT_EQ(name_of_symbol("_ZN2cv6imreadEi"), "cv::imread");
  EXPECT_EQ(name_of_symbol("f"), "f") << "no float";
}

}  // namespace
}  // namespace cube::cli
