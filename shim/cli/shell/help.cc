#include "shim/cli/shell/help.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "shim/cli/shell/description.h"
#include "shim/cli/shell/wrap.h"

namespace cube::cli {
namespace {

constexpr std::size_t k_help_width = 80, k_help_column = 28;
constexpr std::size_t k_few_options = 6;  // --help shows all options of a command that has at
                                          // most this many

// The texts that --help of a command adds to the texts of the parser.
struct Page {
  std::string_view command;
  std::array<std::string_view, 3> examples;
  std::string_view main_options;  // " --a --b "; empty for all options
};

constexpr Page k_pages[] = {
    {"run",
     {"cubeshim run --prefix /mnt/data -- python train.py",
      "cubeshim run -p /mnt/data --ram 16G --disk-dir /nvme/cache -- python train.py",
      "cubeshim run -p /mnt/data --ram-keep 1 -- torchrun train.py"},
     " --prefix --ram --ram-keep --disk-dir --consistency "},
    {"profile",
     {"cubeshim profile --prefix /mnt/data -- python train.py",
      "cubeshim profile --observe -p /mnt/data -- python train.py",
      "cubeshim profile --read cubeshim-profile/raw.*"},
     " --prefix --observe --all --out --read "},
    {"plan",
     {"cubeshim plan", "cubeshim plan --ram 8G,16G --disk 0,200G --nodes 1,4",
      "cubeshim plan --json before"},
     ""},
    {"library", {"LD_PRELOAD=$(cubeshim library) CUBESHIM_PREFIXES=/mnt/data python train.py"}, ""},
    {"warmup",
     {"cubeshim warmup --ram-keep 1 --prefix /mnt/data /mnt/data/train",
      "cubeshim warmup --prefix /mnt/data --filelist epoch.txt",
      "cubeshim warmup --check --prefix /mnt/data /mnt/data/train"},
     " --prefix --filelist --check --dry-run --ram-keep --background "},
    {"stats", {"cubeshim stats", "cubeshim stats --watch 5", "cubeshim stats --json"}, ""},
    {"report",
     {"cubeshim report before.json after.json", "cubeshim report --html page.html after.json"},
     ""},
    {"top", {"cubeshim top", "cubeshim top --name nightly", "cubeshim top --json --count 1"}, ""},
    {"exporter",
     {"cubeshim exporter", "cubeshim exporter --listen 0.0.0.0:9437",
      "cubeshim exporter --textfile /var/lib/node_exporter/cubeshim.prom"},
     " --listen --textfile --every --name --list "},
    {"doctor",
     {"cubeshim doctor --prefix /mnt/data", "cubeshim doctor --prefix /mnt/data python",
      "cubeshim doctor --json --prefix /mnt/data"},
     " --prefix --ram --disk-dir --cluster --json "},
    {"bench",
     {"cubeshim bench /mnt/data/train", "cubeshim bench --files 200 /mnt/data/train",
      "cubeshim bench --disk-dir /nvme/cache /mnt/data/train"},
     " --files --seconds --disk-dir --json "},
    {"clear", {"cubeshim clear", "cubeshim clear --name nightly --disk-dir /nvme/cache"}, ""},
    {"pool",
     {"cubeshim pool start --memory 64G --listen 10.0.0.7", "cubeshim pool status",
      "cubeshim pool stop"},
     " --memory --nvme --nvme-size --listen --port "},
    {"gateway",
     {"cubeshim gateway --buckets /data/train=s3://bucket/train",
      "cubeshim run --buckets /data/train=s3://bucket/train -- python train.py"},
     " --buckets --name --ram-dir --s3-timeout --s3-addressing "},
    {"pack",
     {"cubeshim pack /mnt/data/train train.cube",
      "cubeshim pack --verify /mnt/data/train train.cube",
      "CUBESHIM_PACKS=/mnt/data/train=train.cube cubeshim run -- python train.py"},
     " --verify --list --jobs --json "},
    {"ls",
     {"cubeshim ls train.cube", "cubeshim ls -l train.cube n01440764",
      "cubeshim ls s3://bucket/train"},
     ""},
    {"cat", {"cubeshim cat train.cube labels.csv", "cubeshim cat s3://bucket/labels.csv"}, ""},
    {"verify",
     {"cubeshim verify train.cube", "cubeshim verify --against /mnt/data/train train.cube"},
     ""},
    {"extract",
     {"cubeshim extract train.cube /tmp/train", "cubeshim extract train.cube /tmp/one n01440764"},
     ""},
    {"docs", {"cubeshim docs", "cubeshim docs prefetch | less", "cubeshim docs nanogpt"}, ""},
    {"completion",
     {"source <(cubeshim completion bash)", "cubeshim completion zsh > ~/.zfunc/_cubeshim",
      "cubeshim completion fish > ~/.config/fish/completions/cubeshim.fish"},
     ""},
};

// The groups of settings in --help-all, by the first words of their options. The first row has all
// other settings.
struct Subject {
  std::string_view heading, words;
};
constexpr Subject k_subjects[] = {
    {"Files", ""},
    {"Memory", " ram rss "},
    {"Local disk", " disk "},
    {"Nodes that share", " cluster "},
    {"Metadata", " metadata "},
    {"Prefetching", " prefetch announce ring io "},
    {"Buckets", " buckets s3 command "},
    {"Reports and messages", " stats progress log strict "},
    {"Profiler", " profile observe "},
};

bool has_word(std::string_view words, std::string_view word) {
  return words.find(fmt::format(" {} ", word)) != std::string_view::npos;
}

const Subject& subject_of(const OptionText& option) {
  const std::string_view name = std::string_view(option.names.back()).substr(2);
  const std::string_view first = name.substr(0, name.find('-'));
  const auto* const found =
      std::ranges::find_if(k_subjects, [&](const Subject& s) { return has_word(s.words, first); });
  return found == std::end(k_subjects) ? k_subjects[0] : *found;
}

// Returns "  -p, --prefix DIRECTORY    Directories ...", with the lines of the help below each
// other.
std::string row(const std::string& name, std::string_view help) {
  std::string text = "  " + name;
  if (text.size() + 2 > k_help_column) text += "\n";
  const std::size_t begin = text.rfind('\n') + 1;  // 0: no line break
  for (const auto& line : wrapped(help, k_help_width - k_help_column)) {
    const std::size_t column = text.size() - std::max(begin, text.rfind('\n') + 1);
    text += std::string(column < k_help_column ? k_help_column - column : 0, ' ') + line + "\n";
  }
  return text;
}

std::string row(const OptionText& option, HelpKind kind) {
  // An option without a short name is indented by the width of a short name.
  std::string name = option.names.front().starts_with("--") ? "    " : "";
  name += fmt::format("{}", fmt::join(option.names, ", "));
  if (!option.value.empty()) name += " " + option.value;
  return row(name, kind == HelpKind::all ? option.help : option.brief);
}

std::string rows(const std::vector<OptionText>& options, HelpKind kind) {
  std::string text;
  for (const auto& option : options) text += row(option, kind);
  return text;
}

std::string paragraph(std::string_view text) {
  return fmt::format("{}\n", fmt::join(wrapped(text, k_help_width), "\n"));
}

std::string with_full_stop(std::string text) {
  return text.empty() || text.back() == '.' ? text : text + ".";
}

std::string help_of_command(const CommandText& command, HelpKind kind) {
  const auto* const page = std::find_if(std::begin(k_pages), std::end(k_pages),
                                        [&](const Page& p) { return p.command == command.name; });
  std::string text = paragraph(with_full_stop(command.help));
  text += fmt::format("\nUsage: cubeshim {} {}\n", command.name, command.usage());
  if (page != std::end(k_pages)) {
    text += "\nExamples:\n";
    for (const auto example : page->examples)
      if (!example.empty()) text += fmt::format("  {}\n", example);
  }
  std::vector<OptionText> options;
  const bool shows_all = kind == HelpKind::all || page == std::end(k_pages) ||
                         page->main_options.empty() || command.options.size() <= k_few_options;
  std::copy_if(command.options.begin(), command.options.end(), std::back_inserter(options),
               [&](const OptionText& option) {
                 if (kind == HelpKind::all) return !option.is_setting;
                 return shows_all || has_word(page->main_options, option.names.back());
               });
  // The options come in the order of main_options, in which important settings may come first.
  if (!shows_all) {
    std::stable_sort(options.begin(), options.end(), [&](const auto& a, const auto& b) {
      return page->main_options.find(a.names.back() + " ") <
             page->main_options.find(b.names.back() + " ");
    });
  }
  if (!command.positionals.empty()) text += "\n";
  for (const auto& positional : command.positionals)
    text += row(positional.value + (positional.is_repeatable ? "..." : ""), positional.help);
  text += "\nOptions:\n" + rows(options, kind);
  if (!shows_all)
    text += row("-h, --help, --help-all",
                fmt::format("This text; all {} options", command.options.size()));
  if (kind == HelpKind::brief) return text;
  bool has_settings = false;
  for (const auto& subject : k_subjects) {
    std::vector<OptionText> of_subject;
    std::copy_if(command.options.begin(), command.options.end(), std::back_inserter(of_subject),
                 [&](const OptionText& option) {
                   return option.is_setting && &subject_of(option) == &subject;
                 });
    if (of_subject.empty()) continue;
    if (!has_settings)
      text += "\nSettings (each is also a variable: --ram-dir is CUBESHIM_RAM_DIR):\n";
    has_settings = true;
    text += fmt::format("\n{}:\n{}", subject.heading, rows(of_subject, kind));
  }
  return text;
}

// Groups of commands that share a line at the end of the list.
constexpr Subject k_joint_lines[] = {
    {"print the library's path, documents, completions", " library docs completion "},
    {"make a pack of files, check it, unpack it", " pack ls cat verify extract "},
};

std::string help_of_all(const CLI::App& app) {
  std::string text = paragraph(app.get_description());
  text += R"(Usage: cubeshim COMMAND [OPTION...]
  cubeshim bench /mnt/data                            # What would it bring?
  cubeshim doctor --prefix /mnt/data                  # Would files be served?
  cubeshim run --prefix /mnt/data -- python train.py

)";
  std::vector<std::string> joint[std::size(k_joint_lines)];
  for (const auto& command : describe_subcommands(app)) {
    const auto* const line = std::ranges::find_if(
        k_joint_lines, [&](const Subject& s) { return has_word(s.words, command.name); });
    if (line != std::end(k_joint_lines)) {
      joint[line - k_joint_lines].push_back(command.name);
    } else {
      text += fmt::format("  {:<10}  {}\n", command.name, first_sentence(command.help));
    }
  }
  for (std::size_t i = 0; i < std::size(joint); ++i)
    text += fmt::format("  {}: {}\n", fmt::join(joint[i], ", "), k_joint_lines[i].heading);
  return text + "\ncubeshim COMMAND --help describes a command; cubeshim docs lists documents.\n";
}

}  // namespace

std::string help_text(const CLI::App& app, HelpKind kind) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? help_of_all(app)
                          : help_of_command(describe_command(*commands.front()), kind);
}

}  // namespace cube::cli
