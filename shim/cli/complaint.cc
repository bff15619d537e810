#include "shim/cli/complaint.h"

#include <unistd.h>

#include "cache/base/fold_lines.h"
#include "shim/cli/shell/wrap.h"

namespace cube::cli {

void tell_text(std::string text) {
  const std::size_t size = text.size();
  text.resize(size + size / 2);  // room for line breaks
  text.resize(base::fold_lines(text, size, columns_of(STDERR_FILENO)));
  [[maybe_unused]] const auto written = std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace cube::cli
