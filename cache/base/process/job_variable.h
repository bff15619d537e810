// The environment variable CUBESHIM_JOB identifies the job of a process. The variable contains the
// ProcessId of the job's first process. `cubeshim run` is itself the first process of the job that
// it starts, and appends the pid of the program that it runs: "PID.START.NAMESPACE/PID". Until this
// program ends, it writes the job's messages. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cache/base/process/process_id.h"

namespace cube::base {

inline constexpr const char* k_job_variable = "CUBESHIM_JOB";
// This variable contains the ProcessId of a process that has already told the user that nothing
// will be served. The descendants of this process do not repeat the message, and belong to no job.
inline constexpr const char* k_told_variable = "CUBESHIM_TOLD";

struct JobVariable {
  ProcessId first;
  std::uint32_t speaker = 0;  // 0: the first process writes the job's messages
};

// False: the text does not parse.
bool parse_job_variable(std::string_view text, JobVariable& job);
std::size_t format_job_variable(const JobVariable& job, char* to, std::size_t capacity);

}  // namespace cube::base
