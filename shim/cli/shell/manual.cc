// cubeshim man: prints the man page cubeshim(1). The command is hidden, because `make install`
// installs the page.
#include <cubeshim_date.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "shim/cli/commands.h"
#include "shim/cli/shell/description.h"
#include "shim/cli/shell/wrap.h"

namespace cube::cli {
namespace {

// Escapes a text for roff, so that hyphens remain ASCII hyphens and backslashes remain backslashes.
std::string for_troff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if (c != '`') {
      result += c;
    }
  }
  return result;
}

// Fills lines to a length that roff's checkers accept. Escapes lines that look like a request.
std::string filled(std::string_view text) {
  constexpr std::size_t k_width = 78;
  std::string result;
  for (const auto& line : wrapped(for_troff(text), k_width))
    result += (line.starts_with('.') || line.starts_with('\'') ? "\\&" : "") + line + "\n";
  return result;
}

// Returns the roff text of "-p, --prefix DIRECTORY".
std::string heading_of(const OptionText& option) {
  std::string text;
  for (const auto& name : option.names)
    text += fmt::format("{}\\fB{}\\fR", text.empty() ? "" : ", ", for_troff(name));
  if (!option.value.empty())
    text += fmt::format("{}\\fI{}\\fR", text.empty() ? "" : " ", for_troff(option.value));
  return text;
}

std::string rows_of(const std::vector<OptionText>& options) {
  std::string text;
  for (const auto& option : options)
    text += fmt::format(".TP\n{}\n{}", heading_of(option), filled(option.help));
  return text;
}

std::string part_of(const CommandText& command) {
  std::vector<OptionText> own, settings;
  for (const auto& option : command.options) (option.is_setting ? settings : own).push_back(option);
  std::string text = fmt::format(".SS \"cubeshim {} {}\"\n{}", command.name,
                                 for_troff(command.usage()), filled(command.help + "."));
  text += rows_of(command.positionals) + rows_of(own);
  // If a command has many settings, the page only names them, because it describes all settings in
  // one place.
  constexpr std::size_t k_few = 3;
  if (settings.size() > k_few) {
    text += ".PP\nIt takes all SETTINGS.\n";
  } else if (!settings.empty()) {
    text += ".PP\nOf the SETTINGS it takes ";
    for (std::size_t i = 0; i < settings.size(); ++i) {
      // Each setting is on its own line, because lines must be short.
      const char* const before = i == 0 ? "" : i + 1 < settings.size() ? ",\n" : " and\n";
      text += fmt::format("{}\\fB{}\\fR", before, for_troff(settings[i].names.back()));
    }
    text += ".\n";
  }
  return text;
}

constexpr const char* k_description = R"(.SH DESCRIPTION
Training jobs read millions of small files from a slow mount.
.B cubeshim run
starts such a job with a preload library that reads each file once and
whole, keeps it in memory that all processes of the node share, and serves
it from there.
The other commands look at that cache, fill it, empty it, and say what
stands in its way.
.PP
A cache belongs to a user and has a name; each command means the one that
.B \-\-name
and
.B \-\-ram\-dir
name.
.SH COMMANDS
)";

constexpr const char* k_manual_tail = R"(.SH EXIT STATUS
.TP
0
All is well.
.TP
1
Something is wrong that the output names.
.TP
2
Wrong usage, or a setting that is not usable.
.PP
.B cubeshim run
ends with the status of the program; 126 and 127 mean that it could not be run.
.SH FILES
.TP
.I /dev/shm/cubeshim\-UID\-NAME
The cache of a user.
It goes when the last process that uses it ends, unless CUBESHIM_RAM_KEEP
is 1.
.SH EXAMPLES
.EX
cubeshim bench /mnt/data
cubeshim doctor \-\-prefix /mnt/data
cubeshim run \-\-prefix /mnt/data \-\- python train.py
cubeshim top
.EE
)";

std::string manual(const CLI::App& app) {
  const CommandText common = describe_command(app);
  const auto commands = describe_subcommands(app);
  std::string text = fmt::format(
      ".\\\" Made by `cubeshim man`.\n.TH CUBESHIM 1 \"{}\" \"cubeshim {}\" \"User Commands\"\n",
      CUBESHIM_DATE, CUBESHIM_VERSION);
  std::string summary = common.help;
  if (!summary.empty())
    summary.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(summary.front())));
  if (summary.ends_with('.')) summary.pop_back();
  text += fmt::format(".SH NAME\n{}.SH SYNOPSIS\n", filled("cubeshim - " + summary));
  const char* separator = "";
  for (const auto& command : commands) {
    text +=
        fmt::format("{}.B cubeshim {}\n{}\n", separator, command.name, for_troff(command.usage()));
    separator = ".br\n";
  }
  text += k_description;
  const CommandText* with_most = nullptr;
  for (const auto& command : commands) {
    text += part_of(command);
    if (with_most == nullptr || command.options.size() > with_most->options.size())
      with_most = &command;
  }
  text += ".SH OPTIONS\n" + rows_of(common.options);
  text +=
      ".SH SETTINGS\n" + filled(
                             "Each is also an environment variable: --ram-dir is "
                             "CUBESHIM_RAM_DIR, --prefix is CUBESHIM_PREFIXES, with a colon "
                             "between several. An option takes precedence over the environment.");
  std::vector<OptionText> settings;
  if (with_most != nullptr) {
    std::copy_if(with_most->options.begin(), with_most->options.end(), std::back_inserter(settings),
                 [](const auto& option) { return option.is_setting; });
  }
  return text + rows_of(settings) + k_manual_tail;
}

}  // namespace

void add_manual(CLI::App& app, int& status) {
  app.add_subcommand("man", "Print the man page")->group("")->callback([&app, &status] {
    fmt::print("{}", manual(app));
    status = 0;
  });
}

}  // namespace cube::cli
