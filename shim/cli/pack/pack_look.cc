// cubeshim ls, cat and verify for packs. ls and cat for s3:// names are in shim/cli/bucket.
#include <dirent.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "cache/base/error_text.h"
#include "shim/cli/bucket/session.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/interrupt.h"
#include "shim/cli/pack/pack_check.h"
#include "shim/cli/pack/pack_text.h"
#include "shim/cli/settings.h"

namespace cube::cli {

using cache::RecordKind;

namespace {

struct PackLook {
  std::string file, path, against;
  std::vector<std::string> paths;
  bool is_long = false, is_recursive = false;
  ProgressOptions progress;
};

std::string mode_text(std::uint32_t mode) {
  std::string text = "-rwxrwxrwx";
  text[0] = S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : '-';
  for (unsigned i = 0; i < 9; ++i) {
    if ((mode >> (8 - i) & 1) == 0) text[i + 1] = '-';
  }
  const auto special = [&](std::uint32_t bit, std::size_t at, char with, char without) {
    if ((mode & bit) != 0) text[at] = text[at] == 'x' ? with : without;
  };
  special(S_ISUID, 3, 's', 'S');
  special(S_ISGID, 6, 's', 'S');
  special(S_ISVTX, 9, 't', 'T');
  return text;
}

std::string time_text(std::int64_t seconds) {
  const auto t = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[64];
  if (localtime_r(&t, &parts) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts) == 0)
    return fmt::format("{}", seconds);
  return text;
}

// Returns the name as it is, or in printable form if the output is a terminal.
std::string line_of(std::string_view name) {
  return isatty(STDOUT_FILENO) != 0 ? printable(name) : std::string(name);
}

int print_entry(const PackLook& look, const cache::PackReader& pack, const cache::PackEntry& entry,
                std::string_view name) {
  std::string line;
  if (look.is_long) {
    const auto& s = entry.stat;
    line = fmt::format("{} {:>3} {:>6} {:>6} {:>12} {} ", mode_text(s.mode), s.links, s.user,
                       s.group, s.size, time_text(s.modified.seconds));
  }
  line += line_of(name.empty() ? "." : name);
  if (look.is_long && entry.kind == RecordKind::link) {
    int error = 0;
    const std::string target = read_text(pack, entry, error);
    if (error != 0) return complain(1, fmt::format("{}: {}", shown(name), pack_error(error)));
    line += " -> " + line_of(target);
  }
  fmt::print("{}\n", line);
  return 0;
}

int list_directory(const PackLook& look, const cache::PackReader& pack,
                   const cache::PackEntry& directory, const std::string& path) {
  int error = 0, status = 0;
  const std::string listing = read_text(pack, directory, error);
  if (error != 0) return complain(1, fmt::format("{}: {}", shown(path), pack_error(error)));
  cache::PackListingReader names(listing);
  std::string_view name;
  cache::PackName row{};
  while (names.next(name, row)) {
    if (!look.is_long) {
      fmt::print("{}\n", line_of(name));
      continue;
    }
    const std::string below = path.empty() ? std::string(name) : fmt::format("{}/{}", path, name);
    const auto entry = pack.find(below);
    if (!entry) {
      status = complain(1, fmt::format("{}: {}", shown(below), pack_error(entry.error().value)));
    } else if (print_entry(look, pack, *entry, name) != 0) {
      status = 1;
    }
  }
  return names.is_sound() ? status : complain(1, shown(path) + ": its list of names is damaged");
}

int list_all(const PackLook& look, const cache::PackReader& pack, const std::string& path) {
  cache::PackScan scan = pack.scan();
  cache::PackEntry entry;
  std::string_view name;
  int status = 0;
  for (;;) {
    const auto next = scan.next(entry, name);
    if (next == cache::PackScan::Next::damaged)
      return complain(1,
                      fmt::format("{}: no valid record after byte {}", look.file, scan.position()));
    if (next == cache::PackScan::Next::end) return status;
    if (is_below(name, path) && print_entry(look, pack, entry, std::string(name)) != 0) status = 1;
  }
}

int list(const PackLook& look) {
  if (s3::is_s3_uri(look.file)) {
    if (!look.path.empty())
      return complain(2, "ls takes one name: s3://BUCKET/PREFIX has the path in it");
    return list_bucket(look.file, look.is_long, look.is_recursive);
  }
  std::string why;
  const auto pack = cache::PackReader::open(look.file, why);
  if (pack == nullptr) return complain(1, why);
  const std::string path = look.path.empty() ? "" : path_in_pack(look.path);
  const auto entry = pack->find(path);
  if (!entry)
    return complain(
        1, fmt::format("{}: {} {}", look.file, shown(path), pack_trouble(entry.error().value)));
  if (look.is_recursive) return list_all(look, *pack, path);
  return entry->kind == RecordKind::directory ? list_directory(look, *pack, *entry, path)
                                              : print_entry(look, *pack, *entry, path);
}

int print_data(const cache::PackReader& pack, const cache::PackEntry& entry) {
  return read_checked(pack, entry, [](const std::byte* data, std::size_t n, std::uint64_t) {
    while (n != 0) {
      const ssize_t written = ::write(STDOUT_FILENO, data, n);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return written == 0 ? ENOSPC : errno;
      data += written;
      n -= static_cast<std::size_t>(written);
    }
    return 0;
  });
}

int cat(const PackLook& look) {
  if (s3::is_s3_uri(look.file)) {
    std::vector<std::string> uris = {look.file};
    uris.insert(uris.end(), look.paths.begin(), look.paths.end());
    return print_objects(uris);
  }
  if (look.paths.empty()) return complain(2, "PATH is required: it names files of the pack");
  std::string why;
  const auto pack = cache::PackReader::open(look.file, why);
  if (pack == nullptr) return complain(1, why);
  int status = 0;
  for (const auto& given : look.paths) {
    const std::string path = path_in_pack(given);
    const auto entry = pack->find(path);
    const bool is_file = entry && entry->kind == RecordKind::file;
    const int error = !entry ? entry.error().value : is_file ? print_data(*pack, *entry) : 0;
    if (error != 0) {
      status = complain(1, fmt::format("{}: {} {}", look.file, shown(path), pack_trouble(error)));
    } else if (!is_file) {
      status = complain(1, fmt::format("{}: {} is a {}: cat takes files", look.file, shown(path),
                                       entry->kind == RecordKind::link ? "link" : "directory"));
    }
  }
  return status;
}

int verify(const PackLook& look) {
  std::string why;
  const auto pack = cache::PackReader::open(look.file, why);
  if (pack == nullptr) return complain(1, why);
  base::UniqueFd against;
  if (!look.against.empty()) {
    against = base::UniqueFd(open(look.against.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!against)
      return complain(1,
                      fmt::format("cannot read {}: {}", look.against, base::text_of_error(errno)));
  }
  note_interrupts();
  Progress progress(look.progress);
  const PackFindings found = check_pack(*pack, std::move(against), progress);
  progress.clear();
  if (found.was_interrupted) {
    return complain(128 + interrupted_by(), "interrupted");
  }
  for (const auto& line : found.first) fmt::print("{}\n", line);
  if (found.problems > found.first.size())
    fmt::print("and {} more\n", found.problems - found.first.size());
  fmt::print("{}: {}, {}, {}: {}\n", printable(look.file),
             counted(found.entries, "entry", "entries"), counted(found.files, "file", "files"),
             in_units(found.bytes),
             found.problems == 0 ? "all is well" : counted(found.problems, "problem", "problems"));
  return found.problems == 0 ? 0 : 1;
}

CLI::Option* add_file(CLI::App& command, const std::shared_ptr<PackLook>& look) {
  return command.add_option("FILE", look->file, "The pack, or s3://BUCKET/PREFIX")->required();
}

}  // namespace

void add_pack_look(CLI::App& app, int& status) {
  const auto listed = std::make_shared<PackLook>(), printed = std::make_shared<PackLook>(),
             verified = std::make_shared<PackLook>();
  CLI::App* const ls = app.add_subcommand("ls", "List a directory of a pack or of a bucket");
  add_file(*ls, listed);
  ls->add_option("PATH", listed->path,
                 "Which directory, or file, of the pack; the default is its root");
  ls->add_flag("-l", listed->is_long, "Also modes, links, owners, sizes and times");
  ls->add_flag("-R", listed->is_recursive,
               "Everything below it, one path per line, in the order of the pack");
  ls->callback([listed, &status] { status = list(*listed); });

  CLI::App* const cat_command = app.add_subcommand("cat", "Print files of a pack, or objects");
  add_file(*cat_command, printed);
  cat_command->add_option("PATH", printed->paths,
                          "Files of the pack; s3:// names after the first one");
  cat_command->callback([printed, &status] { status = cat(*printed); });

  CLI::App* const check =
      app.add_subcommand("verify", "Check all of a pack: its index, its records, its data");
  add_file(*check, verified);
  add_value(*check, "--against", "DIRECTORY", verified->against,
            "Also compare it with this directory");
  add_progress_options(*check, verified->progress);
  check->callback([verified, &status] { status = verify(*verified); });
}

}  // namespace cube::cli
