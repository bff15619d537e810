// Parses CUBESHIM_* into Config, and checks the warnings.
#include "cache/base/settings/config.h"

#include <gtest/gtest.h>

#include <map>

namespace cube::base {
namespace {

ParsedConfig parse(const std::map<std::string, std::string>& variables) {
  return parse_config([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

ParsedConfig parse_one(const std::string& name, const std::string& value) {
  return parse({{name, value}});
}

void expect_refused(const std::string& name, const std::string& value, const std::string& takes,
                    const std::string& fallback) {
  const auto errors = parse_one(name, value).errors;
  ASSERT_EQ(errors.size(), 1U) << name << "=" << value;
  EXPECT_EQ(errors[0],
            name + "=\"" + value + "\" is not usable: it takes " + takes + "; using " + fallback);
}

void expect_taken(const std::string& name, const std::string& value) {
  const auto errors = parse_one(name, value).errors;
  EXPECT_TRUE(errors.empty()) << errors[0];
}

TEST(Config, HasTheDefaultsIfNothingIsSet) {
  const auto [config, errors] = parse({});
  EXPECT_TRUE(errors.empty());
  EXPECT_TRUE(config.prefixes.empty());
  EXPECT_EQ(config.mode, Mode::virtual_files);
  EXPECT_EQ(config.name, "default");
  EXPECT_TRUE(config.ram.is_percent);
  EXPECT_EQ(config.ram.value, 25U);
  EXPECT_EQ(config.ram_dir, "/dev/shm");
  EXPECT_FALSE(config.ram_keep);
  EXPECT_EQ(config.max_file, 16ULL << 20);
  EXPECT_EQ(config.consistency.kind, ConsistencyKind::immutable);
  EXPECT_EQ(config.stats, "stderr");
  EXPECT_EQ(config.stats_format, StatsFormat::text);
  EXPECT_EQ(config.stats_interval, 0U);
  EXPECT_EQ(config.log_level, LogLevel::warn);
  EXPECT_FALSE(config.strict);
}

TEST(Config, AcceptsEveryDefault) {
  for (const auto& row : config_rows()) {
    if (!row.default_text.empty())
      expect_taken(std::string(row.variable), std::string(row.default_text));
  }
}

TEST(Config, AnEmptyValueIsTheDefault) {
  for (const auto& row : config_rows()) expect_taken(std::string(row.variable), "");
  EXPECT_EQ(parse_one("CUBESHIM_NAME", "").config.name, "default");
}

TEST(Config, PrefixesAreSplitAndNormalised) {
  const auto config = parse_one("CUBESHIM_PREFIXES", "/mnt//a/./b/::/data/").config;
  EXPECT_EQ(config.prefixes, (std::vector<std::string>{"/data", "/mnt/a/b"}));
}

TEST(Config, APrefixWithinAnotherIsDropped) {
  const auto config = parse_one("CUBESHIM_PREFIXES", "/a/b/c:/a/b:/a/bc:/a/b-c:/a/b").config;
  EXPECT_EQ(config.prefixes, (std::vector<std::string>{"/a/b", "/a/b-c", "/a/bc"}));
}

TEST(Config, PacksAreSplitAndTheirPrefixesServed) {
  const auto config = parse_one("CUBESHIM_PACKS", "/mnt//a/=x.cube::/mnt/a/b=/p/y=z.cube").config;
  ASSERT_EQ(config.origins.size(), 2U);
  EXPECT_EQ(config.origins[0].prefix + " " + config.origins[0].file, "/mnt/a/b /p/y=z.cube")
      << "the innermost first";
  EXPECT_EQ(config.origins[1].prefix + " " + config.origins[1].file, "/mnt/a x.cube");
  EXPECT_EQ(config.prefixes, std::vector<std::string>{"/mnt/a"});
}

TEST(Config, MalformedPacksAreRefused) {
  const std::string takes =
      "PREFIX=FILE of packed data sets, each PREFIX absolute, other than / and given once, ':' "
      "between them";
  for (const char* value : {"/a", "/a=", "=x.cube", "a=x.cube", "/=x.cube", "/a/../b=x.cube",
                            "/a=x:/b", "/a=x:/a//=y"}) {
    expect_refused("CUBESHIM_PACKS", value, takes, "none");
    EXPECT_TRUE(parse_one("CUBESHIM_PACKS", value).config.prefixes.empty());
  }
}

TEST(Config, RelativePrefixesAreRefused) {
  const std::string takes =
      "absolute paths of directories other than /, without '..', ':' between them";
  for (const char* value :
       {"data", "./data", "/a:b", "/a/../b", "/..", "~/data", "/", "/a:/", "//./"}) {
    expect_refused("CUBESHIM_PREFIXES", value, takes, "none");
    EXPECT_TRUE(parse_one("CUBESHIM_PREFIXES", value).config.prefixes.empty());
  }
  EXPECT_EQ(parse_one("CUBESHIM_PREFIXES", "/" + std::string(5000, 'a')).errors.size(), 1U);
  EXPECT_EQ(parse_one("CUBESHIM_PREFIXES", "/a/..b").config.prefixes,
            std::vector<std::string>{"/a/..b"});
}

TEST(Config, ModeTakesItsThreeWords) {
  EXPECT_EQ(parse_one("CUBESHIM_MODE", "real").config.mode, Mode::real_files);
  EXPECT_EQ(parse_one("CUBESHIM_MODE", "off").config.mode, Mode::off);
  EXPECT_EQ(parse_one("CUBESHIM_MODE", "virtual").config.mode, Mode::virtual_files);
  for (const char* value : {"Real", "on", "off ", "1"}) {
    expect_refused("CUBESHIM_MODE", value, "virtual, real or off", "\"virtual\"");
  }
}

TEST(Config, NameTakesLettersDigitsDotsDashesAndUnderscores) {
  for (const std::string& value :
       {std::string("a"), std::string("A.b_c-9"), std::string(64, 'x')}) {
    EXPECT_EQ(parse_one("CUBESHIM_NAME", value).config.name, value);
  }
  for (const std::string& value :
       {std::string("a/b"), std::string("a b"), std::string(65, 'x'), std::string("\xc3\xa9")}) {
    expect_refused("CUBESHIM_NAME", value, "1 to 64 letters, digits, '.', '_' or '-'",
                   "\"default\"");
  }
}

TEST(Config, ADiskHasADirectoryAndABound) {
  EXPECT_EQ(parse_one("CUBESHIM_DISK_DIR", "/mnt//nvme/").config.disk_dir, "/mnt/nvme");
  EXPECT_TRUE(parse_one("CUBESHIM_NAME", "x").config.disk_dir.empty())
      << "none unless it is asked for";
  expect_refused(
      "CUBESHIM_DISK_DIR", "nvme",
      "the absolute path of a directory on a local disk, which is made if its parent exists",
      "none");
  const auto with_directory = [](const char* disk) {
    return parse_config([disk](const char* name) -> const char* {
      if (std::string_view(name) == "CUBESHIM_DISK_DIR") return "/nvme";
      return std::string_view(name) == "CUBESHIM_DISK" ? disk : nullptr;
    });
  };
  EXPECT_EQ(with_directory("10G").config.disk.value, 10ULL << 30);
  EXPECT_FALSE(with_directory("10G").config.disk.is_percent);
  EXPECT_EQ(with_directory("40%").config.disk.value, 40U);
  EXPECT_TRUE(with_directory(nullptr).errors.empty());
  for (const char* value : {"3M", "0%", "101%", "much", "-1"})
    EXPECT_EQ(with_directory(value).errors.size(), 1U) << value;
  const auto alone = parse_one("CUBESHIM_DISK", "10G").errors;
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_NE(alone[0].find("CUBESHIM_DISK=\"10G\" has no effect: CUBESHIM_DISK_DIR is not set"),
            std::string::npos)
      << alone[0];
  EXPECT_EQ(parse_one("CUBESHIM_DISK", "10G").config.disk,
            parse_one("CUBESHIM_NAME", "x").config.disk);
  EXPECT_EQ(parse_one("CUBESHIM_DISK", "3M").errors.size(), 1U)
      << "a wrong size has one line, not one about the directory too";
}

TEST(Config, RamTakesBytesAndPercent) {
  const auto ram = [](const char* text) { return parse_one("CUBESHIM_RAM", text).config.ram; };
  EXPECT_EQ(ram("512M").value, 512ULL << 20);
  EXPECT_FALSE(ram("512M").is_percent);
  EXPECT_EQ(ram("8M").value, 8ULL << 20);
  EXPECT_EQ(ram("8388608").value, 8ULL << 20);
  EXPECT_EQ(ram("1T").value, 1ULL << 40);
  EXPECT_EQ(ram("100%").value, 100U);
  EXPECT_TRUE(ram("1%").is_percent);
  const std::string takes =
      "a size such as 512M, 8G or 40% (of the memory that is free), at least 8M";
  for (const char* value : {"0", "8388607", "7M", "0%", "101%", "%", "-1%", "40 %", "1.5G", "G",
                            "-8G", "8X", "0x800000", "8G8", "16777216T", "18446744073709551616",
                            "99999999999999999999G", "18446744073709551617%"}) {
    expect_refused("CUBESHIM_RAM", value, takes, "\"25%\"");
    EXPECT_EQ(parse_one("CUBESHIM_RAM", value).config.ram.value, 25U);
  }
}

TEST(Config, BytesOverflowExactlyAbove64Bits) {
  std::uint64_t bytes = 0;
  EXPECT_TRUE(parse_bytes("18446744073709551615", bytes));
  EXPECT_EQ(bytes, UINT64_MAX);
  EXPECT_TRUE(parse_bytes("16777215T", bytes));
  EXPECT_EQ(bytes, 16777215ULL << 40);
  EXPECT_FALSE(parse_bytes("16777216T", bytes));
  EXPECT_TRUE(parse_bytes("17179869183G", bytes));
  EXPECT_FALSE(parse_bytes("17179869184G", bytes));
  EXPECT_FALSE(parse_bytes("18014398509481984K", bytes));
  EXPECT_TRUE(parse_bytes("18014398509481983K", bytes));
}

TEST(Config, BytesTakeTheUsualSpellings) {
  std::uint64_t bytes = 0;
  for (const char* text : {"64K", "64k", "64KB", "64KiB", "65536", "65536B"}) {
    bytes = 0;
    EXPECT_TRUE(parse_bytes(text, bytes)) << text;
    EXPECT_EQ(bytes, 65536U) << text;
  }
  for (const char* text :
       {"", "K", "B", "iB", "KiB", " 1K", "1K ", "1 K", "+1", "-1", "1KK", "1e3", "0x10"}) {
    EXPECT_FALSE(parse_bytes(text, bytes)) << text;
  }
}

TEST(Config, BytesRefuseUnknownUnits) {
  std::uint64_t bytes = 0;
  for (const char* text : {"5i", "5iB", "5Ki"}) {
    const bool taken = parse_bytes(text, bytes);
    EXPECT_TRUE(!taken || std::string_view(text) == "5Ki") << text << " was taken for " << bytes;
  }
}

TEST(Config, DirectoryAndSwitchesAreChecked) {
  EXPECT_EQ(parse_one("CUBESHIM_RAM_DIR", "/run//shm/").config.ram_dir, "/run/shm");
  expect_refused("CUBESHIM_RAM_DIR", "shm", "the absolute path of a directory on a tmpfs",
                 "\"/dev/shm\"");
  EXPECT_TRUE(parse_one("CUBESHIM_RAM_KEEP", "1").config.ram_keep);
  EXPECT_TRUE(parse_one("CUBESHIM_STRICT", "1").config.strict);
  for (const char* value : {"yes", "2", "01", "true"}) {
    expect_refused("CUBESHIM_RAM_KEEP", value, "0 or 1", "\"0\"");
    expect_refused("CUBESHIM_STRICT", value, "0 or 1", "\"0\"");
  }
}

TEST(Config, MaxFileIsASize) {
  EXPECT_EQ(parse_one("CUBESHIM_MAX_FILE", "512K").config.max_file, 512U << 10);
  EXPECT_EQ(parse_one("CUBESHIM_MAX_FILE", "0").config.max_file, 0U);
  expect_refused("CUBESHIM_MAX_FILE", "10%", "a size such as 512K or 16M", "\"16M\"");
  expect_refused("CUBESHIM_MAX_FILE", "99999999999T", "a size such as 512K or 16M", "\"16M\"");
}

TEST(Config, ConsistencyTakesItsThreeForms) {
  const auto open = parse_one("CUBESHIM_CONSISTENCY", "open").config.consistency;
  EXPECT_EQ(open.kind, ConsistencyKind::open);
  const auto ttl = parse_one("CUBESHIM_CONSISTENCY", "ttl:90").config.consistency;
  EXPECT_EQ(ttl.kind, ConsistencyKind::ttl);
  EXPECT_EQ(ttl.ttl_seconds, 90U);
  expect_taken("CUBESHIM_CONSISTENCY", "ttl:4294967295");
  for (const char* value :
       {"ttl", "ttl:", "ttl:-1", "ttl:1s", "ttl:4294967296", "never", "ttl:18446744073709551617"}) {
    expect_refused("CUBESHIM_CONSISTENCY", value, "immutable, ttl:SECONDS or open",
                   "\"immutable\"");
    EXPECT_EQ(parse_one("CUBESHIM_CONSISTENCY", value).config.consistency.kind,
              ConsistencyKind::immutable);
  }
}

TEST(Config, StatsAndLogAreChecked) {
  EXPECT_EQ(parse_one("CUBESHIM_STATS", "/tmp/x.%p").config.stats, "/tmp/x.%p");
  EXPECT_EQ(parse_one("CUBESHIM_STATS", std::string(5000, 'x')).errors.size(), 1U);
  EXPECT_EQ(parse_one("CUBESHIM_STATS_FORMAT", "classic").config.stats_format,
            StatsFormat::classic);
  EXPECT_EQ(parse_one("CUBESHIM_STATS_FORMAT", "json").config.stats_format, StatsFormat::json);
  expect_refused("CUBESHIM_STATS_FORMAT", "JSON", "text, classic or json", "\"text\"");
  EXPECT_EQ(parse_one("CUBESHIM_STATS_INTERVAL", "60").config.stats_interval, 60U);
  expect_refused("CUBESHIM_STATS_INTERVAL", "1m", "a whole number of seconds", "\"0\"");
  expect_refused("CUBESHIM_STATS_INTERVAL", "4294967296", "a whole number of seconds", "\"0\"");
  EXPECT_EQ(parse_one("CUBESHIM_LOG", "debug").config.log_level, LogLevel::debug);
  expect_refused("CUBESHIM_LOG", "verbose", "error, warn, info or debug", "\"warn\"");
}

TEST(Config, ErrorNamesNoDefaultIfTheCallerEnds) {
  const auto lookup = [](const char* variable) {
    return std::string_view(variable) == "CUBESHIM_LOG" ? "y" : nullptr;
  };
  const auto errors = parse_config(lookup, IfWrong::end).errors;
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0], "CUBESHIM_LOG=\"y\" is not usable: it takes error, warn, info or debug");
}

TEST(Config, EachInvalidVariableIsReportedOnItsOwnLine) {
  const auto errors =
      parse({{"CUBESHIM_RAM", "x"}, {"CUBESHIM_LOG", "y"}, {"CUBESHIM_MODE", "real"}}).errors;
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_TRUE(errors[0].starts_with("CUBESHIM_RAM=\"x\""));
  EXPECT_TRUE(errors[1].starts_with("CUBESHIM_LOG=\"y\""));
}

TEST(Config, ErrorForAnyValueIsOneLineWithTheAcceptedForm) {
  for (const std::string& value : {std::string("a\nb"), std::string(100'000, '/') + ":relative"}) {
    const auto errors = parse_one("CUBESHIM_PREFIXES", value).errors;
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_EQ(errors[0].find('\n'), std::string::npos);
    // Text that does not fit into a line of the log is cut off.
    EXPECT_NE(errors[0].substr(0, 1000).find("it takes absolute paths"), std::string::npos);
  }
}

TEST(Config, UnknownVariablesAreNamed) {
  const char* const environment[] = {"PATH=/bin",          "CUBESHIM_RAM=1G", "CUBESHIM_PREFIX=/a",
                                     "CUBESHIM_JOB=1.2.3", "CUBESHIM_",       nullptr};
  const auto lines = unknown_variables(environment);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0].starts_with("CUBESHIM_PREFIX is not a setting of this version"));
  EXPECT_TRUE(lines[0].ends_with("; did you mean CUBESHIM_PREFIXES?")) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("CUBESHIM_ is not a setting"));
  EXPECT_NE(lines[1].find(" PREFIXES "), std::string::npos) << lines[1];
  EXPECT_TRUE(unknown_variables(nullptr).empty());
}

}  // namespace
}  // namespace cube::base
