// cubeshim doctor: checks the locks for HDF5, which locks each file that it opens, even for
// reading.
#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "cache/base/error_text.h"
#include "cache/base/unique_fd.h"
#include "shim/cli/doctor/checks.h"

namespace cube::cli {
namespace {

bool is_hdf5(const std::string& path) {
  return path.ends_with(".h5") || path.ends_with(".hdf5") || path.ends_with(".hdf") ||
         path.ends_with(".nc");
}

}  // namespace

void check_locks(const std::string& prefix, const std::vector<std::string>& samples,
                 Findings& findings) {
  const auto file = std::find_if(samples.begin(), samples.end(), is_hdf5);
  const char* const setting = std::getenv("HDF5_USE_FILE_LOCKING");
  const std::string value = setting != nullptr ? setting : "";
  if (file == samples.end() || value == "FALSE" || value == "0") return;
  const auto fd = base::open_fd(file->c_str(), O_RDONLY);
  if (!fd) return;
  const int result = flock(fd->get(), LOCK_SH | LOCK_NB);
  const int error = errno;
  constexpr const char* k_advice =
      "set HDF5_USE_FILE_LOCKING=FALSE if these files are not written meanwhile";
  if (result == 0 || error == EWOULDBLOCK) {
    say(findings, Health::slow, k_advice,
        "prefix {}: HDF5 locks each file that it opens, such as {}; a lock costs an open at the "
        "mount, for a hit too",
        prefix, *file);
  } else if (value != "BEST_EFFORT") {
    say(findings, Health::broken, k_advice,
        "prefix {}: HDF5 cannot open files such as {}, because the mount has no locks ({})", prefix,
        *file, base::text_of_error(error));
  }
}

}  // namespace cube::cli
