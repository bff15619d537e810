// cubeshim report: figures of jobs beside each other, from the reports that they have written.
#include <fcntl.h>
#include <fmt/core.h>

#include <memory>

#include "cache/base/error_text.h"
#include "cache/base/unique_fd.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/report_page.h"
#include "shim/cli/report_table.h"

namespace cube::cli {
namespace {

struct ReportCommand {
  std::vector<std::string> files;
  std::string html;
};

int write_page(const std::string& path, const std::string& page) {
  const auto fd = base::open_fd(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (!fd) return complain(1, fmt::format("cannot write {}: {}", path, base::text_of_error(fd.error().value)));
  for (std::string_view rest = page; !rest.empty();) {
    const ssize_t n = write(fd->get(), rest.data(), rest.size());
    if (n <= 0) return complain(1, fmt::format("cannot write {}: {}", path, base::text_of_error(n < 0 ? errno : ENOSPC)));
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

int report(const ReportCommand& command) {
  std::vector<JobReport> jobs(command.files.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    std::string why;
    if (!read_report(command.files[i], jobs[i], why)) return complain(1, why);
  }
  if (!command.html.empty()) return write_page(command.html, report_page(jobs));
  fmt::print("{}", report_table(jobs));
  return 0;
}

}  // namespace

void add_report(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("report", "Compare jobs by their reports: those of CUBESHIM_STATS with CUBESHIM_STATS_FORMAT=json");
  const auto options = std::make_shared<ReportCommand>();
  command->add_option("files", options->files, "Reports; of a file with those of many jobs, the last one")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--html", options->html,
                   "Write a page with charts of the course instead, for jobs that ran with CUBESHIM_STATS_INTERVAL")
      ->type_name("FILE");
  command->callback([options, &status] { status = report(*options); });
}

}  // namespace cube::cli
