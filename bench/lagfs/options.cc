#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>

namespace cube::lagfs {
namespace {

constexpr std::int64_t k_max_latency_us = 3'600'000'000;  // an hour
constexpr double k_max_seconds = 1e6;

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns a check for CLI11. The check returns an empty string to accept the value, or the error.
template <typename Number>
auto within(Number low, Number high, const char* unit) {
  return [=](const std::string& text) -> std::string {
    const auto value = parse_number<Number>(text);
    if (value && *value >= low && *value <= high) return {};
    return fmt::format("'{}' is not accepted; give a number from {} to {} ({})", text, low, high,
                       unit);
  };
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto colon = text.find(':');
    parts.push_back(text.substr(0, colon));
    if (colon == std::string_view::npos) return parts;
    text.remove_prefix(colon + 1);
  }
}

Op parse_op(std::string_view option, std::string_view rule, std::string_view name) {
  if (const auto op = find_op(name)) return *op;
  throw UsageError(fmt::format("{} {}: unknown operation '{}'; known are: {}", option, rule, name,
                               fmt::join(k_op_names, " ")));
}

double parse_probability(std::string_view option, std::string_view rule, std::string_view text) {
  const auto value = parse_number<double>(text);
  if (value && *value >= 0 && *value <= 1) return *value;
  throw UsageError(fmt::format("{} {}: probability '{}' is not accepted; give a number from 0 to 1",
                               option, rule, text));
}

FailRule parse_fail(std::string_view rule) {
  const auto parts = split(rule);
  if (parts.size() < 2 || parts.size() > 3) {
    throw UsageError(fmt::format(
        "--fail: '{}' is not accepted; give OP:ERRNO[:PROBABILITY], such as open:EIO:0.01", rule));
  }
  const Op op = parse_op("--fail", rule, parts[0]);
  const auto error = find_errno(parts[1]);
  if (!error) {
    throw UsageError(fmt::format(
        "--fail {}: unknown errno '{}'; give a name such as EIO, ENOENT, ESTALE or ETIMEDOUT", rule,
        parts[1]));
  }
  return {op, *error, parts.size() == 3 ? parse_probability("--fail", rule, parts[2]) : 1.0};
}

HangRule parse_hang(std::string_view rule) {
  const auto parts = split(rule);
  if (parts.size() < 2 || parts.size() > 3) {
    throw UsageError(fmt::format(
        "--hang: '{}' is not accepted; give OP:SECONDS[:PROBABILITY], such as read:5:0.01", rule));
  }
  const Op op = parse_op("--hang", rule, parts[0]);
  const auto seconds = parse_number<double>(parts[1]);
  if (!seconds || !(*seconds >= 0 && *seconds <= k_max_seconds)) {
    throw UsageError(fmt::format("--hang {}: '{}' is not accepted; give seconds from 0 to {}", rule,
                                 parts[1], k_max_seconds));
  }
  return {op, *seconds, parts.size() == 3 ? parse_probability("--hang", rule, parts[2]) : 1.0};
}

std::string existing_directory(const char* what, const std::string& path) {
  const std::unique_ptr<char, decltype(&free)> absolute(realpath(path.c_str(), nullptr), &free);
  struct stat st {};
  if (absolute == nullptr || stat(absolute.get(), &st) != 0) {
    throw UsageError(
        fmt::format("{} '{}': {}; give an existing directory", what, path, strerror(errno)));
  }
  if (!S_ISDIR(st.st_mode))
    throw UsageError(
        fmt::format("{} '{}' is not a directory; give an existing directory", what, path));
  return absolute.get();
}

void add_latencies(CLI::App& app, Latency::PerCost& us) {
  struct Row {
    Cost cost;
    const char* name;
    std::int64_t preset;
    const char* help;
  };
  static constexpr Row k_rows[] = {
      {Cost::lookup, "--lookup-us", 300, "latency of a LOOKUP, in microseconds"},
      {Cost::open, "--open-us", 300, "of an OPEN or CREATE"},
      {Cost::read, "--read-us", 300, "of each READ request"},
      {Cost::getattr, "--getattr-us", 300, "of a GETATTR"},
      {Cost::readdir, "--readdir-us", 300, "of a READDIR or READDIRPLUS request"},
      {Cost::other, "--other-us", 300,
       "of all others (WRITE, SETATTR, UNLINK, STATFS, xattrs ...)"},
      {Cost::opendir, "--opendir-us", 0, "of an OPENDIR"},
      {Cost::close, "--close-us", 0, "of FLUSH, RELEASE and RELEASEDIR, each"},
  };
  for (const Row& row : k_rows) {
    std::int64_t& target = us[index_of(row.cost)];
    target = row.preset;
    app.add_option(row.name, target, row.help)
        ->check(within<std::int64_t>(0, k_max_latency_us, "microseconds"))
        ->capture_default_str()
        ->take_last()
        ->group("Latency");
  }
}

}  // namespace

std::variant<Options, Help> parse_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> fails;
  std::vector<std::string> hangs;

  CLI::App app(
      "A pass-through file system with set latency, and exact counters in MOUNTPOINT/.lagfs/.",
      "lagfs");
  app.add_option("SOURCE", options.source, "directory to show")->required();
  app.add_option("MOUNTPOINT", options.mountpoint, "where to show it")->required();

  add_latencies(app, options.latency_us);
  const auto number = [&](const char* name, auto& target, const char* help, auto low, auto high,
                          const char* unit) {
    using Number = std::remove_reference_t<decltype(target)>;
    app.add_option(name, target, help)
        ->check(within<Number>(static_cast<Number>(low), static_cast<Number>(high), unit))
        ->capture_default_str()
        ->take_last();  // so that a script can override an earlier option
  };
  number("--bandwidth-mb", options.bandwidth_mb, "cap over all reads, 10^6 bytes a second; 0: none",
         0, 1e6, "MB/s");
  number("--attr-timeout", options.attr_timeout, "seconds that the kernel keeps attributes", 0,
         k_max_seconds, "seconds");
  number("--entry-timeout", options.entry_timeout, "seconds that it keeps names", 0, k_max_seconds,
         "seconds");
  number("--negative-timeout", options.negative_timeout, "seconds that it keeps absent names", 0,
         k_max_seconds, "seconds");
  number("--max-read", options.max_read,
         "most bytes of a READ request; 0: as the kernel negotiates", 0, 1 << 30, "bytes");
  number("--threads", options.threads, "requests served at a time", 1, 4096, "threads");
  number("--seed", options.seed, "of all probabilities", 0, UINT64_MAX, "any integer");
  number("--short-read", options.short_read,
         "share of reads that answer fewer bytes; needs --direct", 0, 1, "probability");
  app.add_option("--fail", fails, "OP:ERRNO[:PROBABILITY], such as open:EIO:0.01; repeatable")
      ->expected(1)
      ->take_all();
  app.add_option("--hang", hangs, "OP:SECONDS[:PROBABILITY], such as read:5; repeatable")
      ->expected(1)
      ->take_all();
  app.add_flag("--direct", options.direct,
               "FOPEN_DIRECT_IO: no page cache, each read(2) is a READ");
  app.add_flag("--keep-cache", options.keep_cache, "FOPEN_KEEP_CACHE: pages outlive the close");
  app.add_flag("--readdirplus", options.readdirplus, "list with attributes");
  app.add_flag("--own-locks", options.own_locks,
               "keep POSIX locks here instead of in the kernel, each for its whole file");
  app.add_flag("--foreground", options.foreground,
               "stay in the foreground; SIGUSR1 prints the counters");
  app.add_option("-o", options.mount_options, "mount options, such as ro or default_permissions")
      ->expected(1)
      ->take_all();

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Help{app.help()};
  } catch (const CLI::ParseError& error) {
    throw UsageError(
        fmt::format("{}; usage: lagfs [options] SOURCE MOUNTPOINT (see --help)", error.what()));
  }

  for (const auto& rule : fails) options.fails.push_back(parse_fail(rule));
  for (const auto& rule : hangs) options.hangs.push_back(parse_hang(rule));
  if (options.short_read > 0 && !options.direct) {
    // In FUSE, a short reply to a read for the page cache means the end of the file, so the kernel
    // would truncate the file there.
    throw UsageError(
        "--short-read: accepted with --direct only; without, the kernel takes a short read for the "
        "end of the file");
  }
  options.source = existing_directory("SOURCE", options.source);
  options.mountpoint = existing_directory("MOUNTPOINT", options.mountpoint);
  return options;
}

}  // namespace cube::lagfs
