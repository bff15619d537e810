// cubeshim doctor: checks the program, the C library and other preloaded libraries. The program's
// loader must be able to load libcubeshim.so.
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string_view>

#include "cache/base/sys.h"
#include "shim/cli/doctor/checks.h"
#include "shim/cli/run/elf_file.h"
#include "shim/cli/run/library.h"
#include "shim/cli/run/program_file.h"

namespace cube::cli {
namespace {

std::string glibc_text(unsigned number) {
  return fmt::format("{}.{}", number / 1000, number % 1000);
}

void check_executable(const std::string& path, Findings& findings) {
  constexpr const char* k_none =
      "nothing can be preloaded into it: run it without cubeshim, or use another program";
  struct ::stat st {};
  const bool is_known = stat(path.c_str(), &st) == 0;
  const auto elf = read_elf(path);
  if (!elf)
    return say(findings, Health::broken, "name the program itself",
               "{} is not a program that can be read", path);
  if (!elf->is_of_this_machine)
    return say(findings, Health::broken, "libcubeshim.so would have to be built for that processor",
               "{} is a program of another processor, or of 32 bits", path);
  if (elf->interpreter.empty())
    return say(findings, Health::broken, k_none,
               "{} is a static{} program: the loader that would preload the library does not run",
               path, elf->is_go ? " Go" : "");
  if (elf->is_go)
    return say(findings, Health::broken, k_none,
               "{} is a Go program: it calls the kernel without the C library", path);
  if (elf->is_musl())
    return say(findings, Health::broken, "libcubeshim.so needs glibc", "{} runs with musl ({})",
               path, elf->interpreter);
  if (!elf->needs_libc())
    return say(findings, Health::broken, k_none,
               "{} does not use libc.so.6, whose file calls the library answers", path);
  const bool is_privileged =
      is_known && ((st.st_mode & (S_ISUID | S_ISGID)) != 0 ||
                   getxattr(path.c_str(), "security.capability", nullptr, 0) > 0);
  if (is_privileged)
    return say(findings, Health::broken,
               "use a copy without that mark, if the program works without it",
               "{} is set-user-ID, set-group-ID or has file capabilities: the loader preloads "
               "nothing into it",
               path);
  say(findings, Health::well, "", "{} loads {}: the library can be preloaded", path,
      elf->interpreter);
}

// The names of preloaded libraries that affect cubeshim, and their effects.
struct Neighbour {
  std::string_view name;
  Health health;
  const char *fact, *advice;
};
constexpr Neighbour k_neighbours[] = {
    {"libjemalloc", Health::well, "an allocator; it may come before the library or after it", ""},
    {"libtcmalloc", Health::well, "an allocator; it may come before the library or after it", ""},
    {"libmimalloc", Health::well, "an allocator; it may come before the library or after it", ""},
    {"libeatmydata", Health::well, "it may come before the library or after it", ""},
    {"libasan", Health::slow, "it must come first",
     "LD_PRELOAD=libasan.so:libcubeshim.so without cubeshim run"},
    {"libfakechroot", Health::slow, "it changes what paths mean",
     "put it before libcubeshim.so, without cubeshim run: otherwise the wrong files are read"},
    {"libredirect", Health::slow, "it changes what paths mean",
     "put it before libcubeshim.so, without cubeshim run: otherwise the wrong files are read"},
    {"libfakeroot", Health::slow,
     "it answers stat itself: after the library, it is asked each time",
     "put it before libcubeshim.so"},
    {"libfaketime", Health::slow,
     "it answers stat itself: after the library, it is asked each time",
     "put it before libcubeshim.so"},
};

}  // namespace

void check_library(Findings& findings) {
  struct ::utsname name {};
  uname(&name);
  const std::string library = find_library();
  const auto elf = library.empty() ? std::nullopt : read_elf(library);
  const std::string system =
      fmt::format("{} {}, glibc {}", name.sysname, name.release, gnu_get_libc_version());
  if (!elf || !elf->is_of_this_machine)
    return say(findings, Health::broken,
               "install the package for this machine, or give cubeshim run --library PATH",
               "{}: there is no libcubeshim.so for this machine beside this command", system);
  if (elf->glibc > glibc_number(gnu_get_libc_version()))
    return say(findings, Health::broken, "use a newer system, or build the library on this one",
               "{}: too old, because {} needs glibc {}", system, library, glibc_text(elf->glibc));
  say(findings, Health::well, "", "{}; the library needs glibc {}", system, glibc_text(elf->glibc));
}

void check_program(const std::string& program, Findings& findings) {
  const std::string path = executable_of(program);
  if (path.empty())
    return say(findings, Health::broken, "correct its name, or PATH",
               "{}: no such program, or its interpreter is missing", program);
  check_executable(path, findings);
}

void check_preloaded(Findings& findings) {
  const char* const preloaded = std::getenv("LD_PRELOAD");
  if (preloaded == nullptr) return;
  for (const auto& path : split_words(preloaded, ": ")) {
    const std::string name = path.substr(path.rfind('/') + 1);
    const auto known = std::find_if(std::begin(k_neighbours), std::end(k_neighbours),
                                    [&](const auto& n) { return name.starts_with(n.name); });
    if (name == "libcubeshim.so") continue;
    if (known != std::end(k_neighbours)) {
      say(findings, known->health, known->advice, "LD_PRELOAD has {}: {}", path, known->fact);
    } else {
      say(findings, Health::well, "",
          "LD_PRELOAD has {}: if it answers file calls itself, it must come before the library",
          path);
    }
  }
}

}  // namespace cube::cli
