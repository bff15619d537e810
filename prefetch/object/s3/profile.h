// The environment variables, and a profile from AWS's configuration files (~/.aws/config and
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

  // Returns an empty string if the variable is not set.
  std::string variable(const char* name) const;
  // The value of a key of the profile; empty if the profile lacks the key. A key can be nested,
  // like "s3.addressing_style".
  std::string of_profile(const std::string& key) const;
  // The value of a key of another section, such as "services NAME" or "profile NAME".
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

// The content of a small file; empty if the file cannot be read.
std::string read_small_file(const std::string& path);

}  // namespace cube::s3
