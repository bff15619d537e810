#include "cache/origin/mount_origin.h"

#include <cerrno>
#include <utility>

#include "cache/origin/mount_file.h"

namespace cube::cache {
namespace {

class OpenedOfMount final : public Opened {
 public:
  OpenedOfMount(MountFile&& file, std::string_view key, base::Stats* stats)
      : kernel_file_(std::move(file)), stats_(stats) {
    file_.stat = kernel_file_.stat();
    file_.is_physical = kernel_file_.is_physical(key);
    file_.is_private = kernel_file_.is_private();
    file_.fd = kernel_file_.fd();
  }

  base::Result<void> read_whole(std::byte* to) override {
    return kernel_file_.read_whole(to, stats_);
  }
  bool is_unchanged() override { return kernel_file_.is_unchanged(stats_); }
  base::Result<int> hand_over(int /*flags*/) override {
    const int fd = kernel_file_.release();
    if (fd < 0) return base::fail(EINTR);
    return fd;
  }

 private:
  MountFile kernel_file_;
  base::Stats* stats_;
};

class MountOrigin final : public Origin {
 public:
  constexpr MountOrigin() : Origin(k_mounts, {}) {}

  base::Result<FileStat> stat(std::string_view /*key*/, const char* path) const override {
    return stat_path(AT_FDCWD, path, k_ask_server);
  }

  base::Result<void> open(const OriginOpen& wish, OpenedPlace& place) const override {
    auto file = MountFile::open(wish.path, wish.flags, wish.stats);
    if (!file) return base::fail(file.error().value);
    place.make<OpenedOfMount>(std::move(*file), wish.key, wish.stats);
    return {};
  }

  base::Result<Listing*> list(std::string_view /*key*/) const override {
    return base::fail(ENOENT);
  }
};

// Initialized at compile time, because constructors of the program may open files.
constinit const MountOrigin g_mount_origin;

}  // namespace

const Origin& mount_origin() { return g_mount_origin; }

}  // namespace cube::cache
