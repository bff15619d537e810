// cubeshim report: shows the figures of jobs side by side. The figures come from the reports that
// the jobs have written.
#include <fmt/core.h>

#include <memory>

#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/report/report_page.h"
#include "shim/cli/report/report_table.h"
#include "shim/cli/text_file.h"

namespace cube::cli {
namespace {

struct ReportCommand {
  std::vector<std::string> files;
  std::string html;
};

int report(const ReportCommand& command) {
  std::vector<JobReport> jobs(command.files.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    std::string why;
    if (!read_report(command.files[i], jobs[i], why)) return complain(1, why);
  }
  if (!command.html.empty()) {
    const std::string trouble = write_text_file(command.html, report_page(jobs));
    return trouble.empty() ? 0 : complain(1, trouble);
  }
  fmt::print("{}", report_table(jobs));
  return 0;
}

}  // namespace

void add_report(CLI::App& app, int& status) {
  CLI::App* const command = app.add_subcommand("report",
                                               "Compare jobs by their reports. CUBESHIM_STATS=FILE "
                                               "CUBESHIM_STATS_FORMAT=json makes a job write one");
  const auto options = std::make_shared<ReportCommand>();
  command
      ->add_option("FILE", options->files,
                   "A report. If the file holds several, the last one counts")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--html", options->html,
                   "Write a page with charts over time instead, for jobs that ran with "
                   "CUBESHIM_STATS_INTERVAL")
      ->type_name("FILE");
  command->callback([options, &status] { status = report(*options); });
}

}  // namespace cube::cli
