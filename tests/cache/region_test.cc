// A region: which files and options it accepts or refuses, and how it is protected.
#include "cache/region/region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cache/base/memory/kernel_page.h"
#include "cache/base/memory/mapping.h"
#include "cache/region/resident_pages.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::k_mib;
using tests::RegionName;
using tests::run_in_child;
using tests::TestRegion;

// Makes a region file to which no process is attached.
void make_region(const RegionName& name) {
  auto options = name.options;
  options.keep = true;
  options.create = true;
  const int status = run_in_child([&] {
    Region* const region = tests::attach(options);
    CHILD_CHECK(region != nullptr);
    region->detach();
    return 0;
  });
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(tests::exists(name.path()));
}

// Attaches, and returns the errno or 0.
int attach_error(const RegionOptions& options, std::string& why) {
  why.clear();
  const auto region = Region::attach(options, why);
  if (region) tests::never_freed(*region);
  return region ? 0 : region.error().value;
}

void expect_refused(const RegionName& name, int error, const std::string& reason) {
  std::string why;
  EXPECT_EQ(attach_error(name.options, why), error);
  EXPECT_NE(why.find(reason), std::string::npos) << why;
  EXPECT_NE(why.find(name.path()), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos);
  EXPECT_TRUE(tests::exists(name.path())) << "what is refused is left alone";
}

TEST(Region, AttachMakesAFileOfMode0600RegardlessOfUmask) {
  const mode_t old = umask(0777);
  const TestRegion region;
  umask(old);
  struct stat st {};
  ASSERT_EQ(stat(region.path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode, S_IFREG | 0600U);
  EXPECT_EQ(static_cast<std::uint64_t>(st.st_size), region->layout().file_bytes);
  // The control part has memory from the start; segments do not.
  EXPECT_GE(static_cast<std::uint64_t>(st.st_blocks) * 512, region->layout().index[1]);
  EXPECT_LT(static_cast<std::uint64_t>(st.st_blocks) * 512, region->layout().file_bytes);
}

TEST(Region, AttachWithoutCreateTakesOnlyAnExistingRegion) {
  RegionName name;
  name.options.create = false;
  std::string why = "unset";
  EXPECT_EQ(attach_error(name.options, why), ENOENT);
  EXPECT_EQ(why, "");
  EXPECT_FALSE(tests::exists(name.path()));
  make_region(name);
  EXPECT_EQ(attach_error(name.options, why), 0) << why;
}

TEST(Region, IsRefusedWithAnotherMode) {
  const RegionName name;
  make_region(name);
  for (const mode_t mode : {0644, 0660, 0602, 0700}) {
    ASSERT_EQ(chmod(name.path().c_str(), mode), 0);
    expect_refused(name, EPERM, "mode 0600");
  }
}

TEST(Region, IsRefusedWithAnotherOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const RegionName name;
  make_region(name);
  ASSERT_EQ(chown(name.path().c_str(), 12345, 0), 0);
  expect_refused(name, EPERM, "file of this user");
}

TEST(Region, IsRefusedWithAnotherVersion) {
  const RegionName name;
  make_region(name);
  const base::UniqueFd fd(open(name.path().c_str(), O_RDWR | O_CLOEXEC));
  const std::uint32_t version = k_layout_version + 1;
  ASSERT_EQ(pwrite(fd.get(), &version, sizeof version, offsetof(RegionHeader, version)),
            static_cast<ssize_t>(sizeof version));
  expect_refused(name, EPROTO, "layout version " + std::to_string(version));
}

TEST(Region, IsRefusedWithAnotherSize) {
  const RegionName name;
  const off_t whole = static_cast<off_t>(layout_for(name.options.size).file_bytes);
  for (const off_t size :
       {off_t{0}, off_t{100}, off_t{4096}, whole - 4096, whole - 1, whole + 4096}) {
    unlink(name.path().c_str());
    make_region(name);
    ASSERT_EQ(truncate(name.path().c_str(), size), 0);
    expect_refused(name, EPROTO, "not a sound region");
  }
}

TEST(Region, WithAForgedLayoutIsRefused) {
  const RegionName name;
  make_region(name);
  const base::UniqueFd fd(open(name.path().c_str(), O_RDWR | O_CLOEXEC));
  RegionLayout layout = layout_for(name.options.size);
  layout.index[0] += 64;
  ASSERT_EQ(pwrite(fd.get(), &layout, sizeof layout, offsetof(RegionHeader, layout)),
            static_cast<ssize_t>(sizeof layout));
  expect_refused(name, EPROTO, "not a sound region");
}

TEST(Region, OtherFilesOfItsNameAreNeitherFollowedNorTaken) {
  const RegionName name;
  const tests::TempDir dir;
  const RegionName real;
  make_region(real);
  ASSERT_EQ(symlink(real.path().c_str(), name.path().c_str()), 0);
  expect_refused(name, ELOOP, "cannot open");
  unlink(name.path().c_str());
  ASSERT_EQ(mkfifo(name.path().c_str(), 0600), 0);
  expect_refused(name, EPERM, "refused");
  unlink(name.path().c_str());
  ASSERT_EQ(mkdir(name.path().c_str(), 0700), 0);
  expect_refused(name, EISDIR, "cannot open");
  rmdir(name.path().c_str());
  ASSERT_TRUE(tests::TempDir::write_file(name.path(), "hello"));
  chmod(name.path().c_str(), 0600);
  expect_refused(name, EPROTO, "not a sound region");
}

TEST(Region, MissingOrUnwritableDirectoryIsReportedInOneLine) {
  RegionName name;
  name.options.directory = "/no/such/directory";
  std::string why;
  EXPECT_EQ(attach_error(name.options, why), ENOSPC);
  EXPECT_EQ(why,
            "CUBESHIM_RAM_DIR=/no/such/directory: No such file or directory; it takes a directory "
            "on a tmpfs");
  name.options.directory = "/proc";
  EXPECT_NE(attach_error(name.options, why), 0);
  EXPECT_NE(why, "");
}

TEST(Region, CanBeSharedByASecondProcessAtEveryRoundSize) {
  for (const std::uint64_t mib :
       {8ULL, 64ULL, 128ULL, 256ULL, 257ULL, 512ULL, 1024ULL, 2048ULL, 4096ULL}) {
    const RegionName name(mib * k_mib);
    make_region(name);
    std::string why;
    EXPECT_EQ(attach_error(name.options, why), 0) << mib << " MiB: " << why;
  }
}

TEST(Region, TooSmallTmpfsIsReportedInOneLine) {
  const tests::TmpfsMount tmpfs("4m");
  if (!tmpfs.is_mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  const RegionName name(64 * k_mib, tmpfs.path());
  std::string why;
  EXPECT_EQ(attach_error(name.options, why), ENOSPC);
  EXPECT_TRUE(why.starts_with("no room for a cache: " + tmpfs.path() + " has 4 MiB free")) << why;
}

TEST(Region, OnASmallTmpfsLeavesRoomForOthers) {
  const tests::TmpfsMount tmpfs("64m");
  if (!tmpfs.is_mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  testing::internal::CaptureStderr();
  const TestRegion region(1024 * k_mib, tmpfs.path());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_LE(region->layout().file_bytes, 32 * k_mib);
  EXPECT_GE(region->layout().file_bytes, 28 * k_mib);
  EXPECT_NE(said.find("is more than " + tmpfs.path() + " has room for: using 32 MiB\n"),
            std::string::npos)
      << said;
}

TEST(Region, DataCannotBeMadeWritable) {
  const TestRegion region;
  RamTier tier(*region);
  const auto pin = tests::put(tier, "/a", "hello");
  ASSERT_TRUE(pin);
  auto* const page =
      reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&**pin) / k_page * k_page);
  EXPECT_EQ(mprotect(page, k_page, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
  const int status = run_in_child([&] {
    const_cast<volatile char&>(reinterpret_cast<const volatile char&>(**pin)) = 1;
    return 0;
  });
  EXPECT_NE(status, 0) << "a stray store went through";
}

// Without huge pages, a process that fills a segment has a page fault for each 4 KiB.
TEST(Region, WindowsOfSegmentsAreMappedByHugePages) {
  const TestRegion region;
  const std::uint64_t bytes = region->layout().segment_bytes;
  const auto first = region->window(0, bytes);
  const auto second = region->window(bytes, bytes);
  const auto later = region->window(bytes + k_page, bytes);
  ASSERT_TRUE(first && second && later);
  const auto place = [](const base::Mapping& window) {
    return reinterpret_cast<std::uintptr_t>(window.data()) % base::Mapping::k_huge_page;
  };
  EXPECT_EQ(place(*first), 0U);
  EXPECT_EQ(place(*second), 0U);
  EXPECT_EQ(place(*later), k_page);
  ASSERT_TRUE(region->reserve_segments(0, 2));
  std::memset(first->data(), 'a', bytes);
  std::memset(second->data(), 'b', bytes);
  EXPECT_EQ(region->segment(0)[bytes - 1], std::byte{'a'});
  EXPECT_EQ(region->segment(1)[0], std::byte{'b'});
  EXPECT_EQ(later->data()[0], std::byte{'b'});
}

TEST(Region, KeepsNoFdOpen) {
  const auto count = [] {
    int n = 0;
    for (int fd = 0; fd < 256; ++fd) n += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return n;
  };
  const int before = count();
  const TestRegion region;
  RamTier tier(*region);
  ASSERT_TRUE(tests::put(tier, "/a", "hello"));
  ASSERT_EQ(tier.mark_stale("/a"), 1U);
  EXPECT_EQ(count(), before);
}

TEST(Region, ReopenFailsIfTheNameIsGoneOrReplaced) {
  const TestRegion region;
  EXPECT_TRUE(region->reopen(O_RDONLY));
  ASSERT_EQ(rename(region.path().c_str(), (region.path() + ".old").c_str()), 0);
  EXPECT_EQ(region->reopen(O_RDONLY).error().value, ESTALE);
  ASSERT_EQ(symlink((region.path() + ".old").c_str(), region.path().c_str()), 0);
  EXPECT_FALSE(region->reopen(O_RDONLY)) << "through a link";
  unlink(region.path().c_str());
  ASSERT_TRUE(tests::TempDir::write_file(region.path(), "other"));
  EXPECT_EQ(region->reopen(O_RDONLY).error().value, ESTALE);
  unlink((region.path() + ".old").c_str());
}

TEST(Region, AFullTmpfsIsAnErrorAndNeverASignal) {
  const tests::TmpfsMount tmpfs("64m");
  if (!tmpfs.is_mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  const TestRegion region(24 * k_mib, tmpfs.path());
  RamTier tier(*region);
  const std::string data(100'000, 'x');
  ASSERT_TRUE(tests::put(tier, "/first", data));
  tmpfs.fill();
  int put = 0;
  int error = 0;
  for (; put < 1000; ++put) {
    const auto pin = tests::put(tier, "/f" + std::to_string(put), data);
    if (pin) continue;
    error = pin.error().value;
    break;
  }
  EXPECT_EQ(error, ENOMEM) << "what is free is left to others";
  EXPECT_LT(put, 25) << "beyond the segment that was reserved";
  EXPECT_NE(region->header().full_until.load(), 0U);
  EXPECT_TRUE(tests::find(tier, "/first"));
  EXPECT_EQ(tests::bytes_of(*tests::find(tier, "/first")), data);
}

// Returns whether the first page is in this process's page table.
bool is_resident(const base::Mapping& mapping) {
  std::uint64_t entry = 0;
  const int map = open("/proc/self/pagemap", O_RDONLY);
  const auto page = reinterpret_cast<std::uintptr_t>(mapping.data()) / base::kernel_page();
  EXPECT_EQ(pread(map, &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)),
            static_cast<ssize_t>(sizeof entry));
  close(map);
  return (entry >> 63) != 0;
}

TEST(ResidentPages, AllViewsDropThemEachTimeTheBoundWasRead) {
  auto data = base::Mapping::shared_zeros(k_mib), writable = base::Mapping::shared_zeros(k_mib);
  ASSERT_TRUE(data && writable);
  ResidentPages pages;
  const auto touch_and_read = [&](std::uint64_t bytes) {
    data->data()[0] = writable->data()[0] = std::byte{1};
    pages.note_read(bytes, *data, *writable);
  };
  touch_and_read(64 * k_mib);
  EXPECT_TRUE(is_resident(*data)) << "without a bound";
  pages.set_bound(32 * k_mib);
  for (int i = 0; i < 2; ++i) {
    touch_and_read(16 * k_mib);
    EXPECT_TRUE(is_resident(*data) && is_resident(*writable));
    touch_and_read(16 * k_mib);
    EXPECT_FALSE(is_resident(*data) || is_resident(*writable));
    EXPECT_EQ(data->data()[0], std::byte{1}) << "the bytes stay";
  }
}

}  // namespace
}  // namespace cube::cache
