// The environment, and the profile of AWS's configuration files (~/.aws/config and
// ~/.aws/credentials). Thread safety: constant after load_environment().
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace cube::s3 {

class Environment {
 public:
  using Lookup = std::function<const char*(const char* variable)>;
  // Reads the profile that AWS_PROFILE names. Missing files count as empty.
  explicit Environment(Lookup lookup);

  // Empty: not set.
  std::string variable(const char* name) const;
  // A key of the profile; "s3.addressing_style" is a nested one. Empty: the profile lacks it.
  std::string of_profile(const std::string& key) const;
  // A key of another section: "services NAME", "profile NAME".
  std::string of_section(const std::string& section, const std::string& key) const;
  const std::string& profile() const { return profile_; }
  bool is_on(const char* name) const;

 private:
  void read(const std::string& path, bool is_config);

  Lookup lookup_;
  std::string profile_;
  // The sections of both files; "profile x" is stored as "x".
  std::map<std::string, std::map<std::string, std::string>> sections_;
};

// All of a small file; empty if it cannot be read.
std::string read_small_file(const std::string& path);

}  // namespace cube::s3
