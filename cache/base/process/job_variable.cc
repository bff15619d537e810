#include "cache/base/process/job_variable.h"

#include <fmt/core.h>

#include "cache/base/words.h"

namespace cube::base {

bool parse_job_variable(std::string_view text, JobVariable& job) {
  const std::size_t slash = text.find('/');
  if (!parse_process_id(text.substr(0, slash), job.first)) return false;
  job.speaker = 0;
  if (slash == std::string_view::npos) return true;
  job.speaker = number_of<decltype(job.speaker)>(text.substr(slash + 1)).value_or(0);
  return job.speaker != 0;
}

std::size_t format_job_variable(const JobVariable& job, char* to, std::size_t capacity) {
  std::size_t n = format_process_id(job.first, to, capacity);
  if (job.speaker == 0) return n;
  const auto end = fmt::format_to_n(to + n, capacity - 1 - n, "/{}", job.speaker);
  *end.out = '\0';
  return static_cast<std::size_t>(end.out - to);
}

}  // namespace cube::base
