#include "shim/process/python_site.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "cache/base/log.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"

namespace cube::shim::python_site {
namespace {

namespace sys = base::sys;

constexpr const char* k_python_path = "PYTHONPATH";

// Paths of `site` relative to the directory of the library. The library may lie in PREFIX/lib or
// PREFIX/lib64 (also of a wheel's prefix), in PREFIX/lib/MACHINE (Debian), beside `site`, or in a
// build directory. If the library is not in a build directory, the last path could lead somewhere
// else.
constexpr const char* k_places[] = {"../" CUBESHIM_DATA_FOLDER "/cubeshim/python/site",
                                    "../../" CUBESHIM_DATA_FOLDER "/cubeshim/python/site", "site",
                                    CUBESHIM_SITE_FROM_BUILD};

std::string link_target(const char* path) {
  char text[PATH_MAX];
  const long n = sys::readlink(path, text, sizeof text);
  return sys::failed(n) ? std::string() : std::string(text, static_cast<std::size_t>(n));
}

// The users whose files are trusted. If all users can write to the directory of the library (as in
// /tmp), another user could have put files next to it, and every Python program would run these
// files. The library's owner is trusted, because code of this owner runs in every Python program
// anyway.
class TrustedOwners {
 public:
  explicit TrustedOwners(const char* library) {
    struct ::stat st {};
    is_known_ = !sys::failed(sys::fstatat(AT_FDCWD, library, &st, 0));
    owner_ = st.st_uid;
  }
  bool may_have_put(const struct ::stat& st) const {
    return is_known_ && (st.st_mode & S_IWOTH) == 0 &&
           (st.st_uid == owner_ || st.st_uid == 0 || st.st_uid == sys::geteuid());
  }

 private:
  bool is_known_;
  uid_t owner_;
};

// Returns the real path of `place`. Returns an empty path if `place` is not a directory with a
// sitecustomize, or if an untrusted user may have made it.
std::string real_site(const std::string& place, const TrustedOwners& owners) {
  const long opened = sys::open(place.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (sys::failed(opened)) return {};
  const base::UniqueFd fd(static_cast<int>(opened));
  for (const char* const name : {"sitecustomize.py", ""}) {
    struct ::stat st {};
    if (sys::failed(sys::fstatat(fd.get(), name, &st, AT_EMPTY_PATH)) || !owners.may_have_put(st))
      return {};
  }
  return link_target(base::ProcFdName(fd.get()).c_str());
}

bool holds(std::string_view list, std::string_view entry) {
  while (true) {
    const std::size_t end = std::min(list.find(':'), list.size());
    if (list.substr(0, end) == entry) return true;
    if (end == list.size()) return false;
    list.remove_prefix(end + 1);
  }
}

}  // namespace

std::string find_beside(const char* library) {
  const std::string_view path = library;
  const std::string folder(path.substr(0, path.rfind('/') + 1));
  const TrustedOwners owners(library);
  for (const char* const place : k_places) {
    const std::string site = real_site(folder + place, owners);
    if (!site.empty()) return site.find(':') == std::string::npos ? site : std::string();
  }
  return {};
}

bool is_interpreter(std::string_view name) {
  const std::string_view head = name.starts_with("pypy") ? "pypy" : "python";
  if (!name.starts_with(head)) return false;
  name.remove_prefix(head.size());
  const auto drop = [&name](std::string_view set) {
    name.remove_prefix(std::min(name.find_first_not_of(set), name.size()));
  };
  drop("0123456789.");
  drop("dmtu");  // flags of the ABI: debug, pymalloc, no GIL, wide Unicode
  return name.empty() || name == "-dbg" || name == "-debug" || name == "-c";
}

void add(const std::string& site) {
  const char* const others = std::getenv(k_python_path);
  const std::string_view list = others != nullptr ? others : "";
  if (holds(list, site)) return;
  // An empty entry at the end would mean the working directory.
  const std::string value = list.empty() ? site : (site + ":").append(list);
  // The kernel accepts no string of more than 32 pages, so a program with a longer value could not
  // start any other program.
  constexpr std::size_t k_longest = 32 * 4096 - sizeof "PYTHONPATH=";
  if (value.size() <= k_longest) setenv(k_python_path, value.c_str(), 1);
}

void start(bool says_why) {
  const std::string program = link_target("/proc/self/exe");
  if (!is_interpreter(std::string_view(program).substr(program.rfind('/') + 1))) return;
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&start), &library) == 0 || library.dli_fname == nullptr)
    return;
  const std::string site = find_beside(library.dli_fname);
  if (!site.empty()) return add(site);
  if (says_why) base::log(base::LogLevel::info, k_is_missing, library.dli_fname);
}

}  // namespace cube::shim::python_site
