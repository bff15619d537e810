// A path in a fixed buffer, and a builder that assembles it from parts. Thread safety: each object
// is for one thread.
#pragma once

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace cube::shim {

class CoveredPath {
 public:
  std::string_view key() const { return {text_, length_}; }
  const char* c_str() const { return text_; }

 private:
  friend class PathBuilder;
  std::size_t length_ = 0;
  char text_[PATH_MAX];  // uninitialized: most paths are not covered
};

// Builds an absolute path, part by part.
class PathBuilder {
 public:
  explicit PathBuilder(CoveredPath& out) : out_(out) { out_.length_ = 0; }

  // Appends the path as it is, except for "." and "//". Returns false if the path does not fit.
  bool spell(std::string_view path) {
    for (std::size_t at = 0; at < path.size();) {
      const std::size_t end = std::min(path.find('/', at), path.size());
      const std::string_view part = path.substr(at, end - at);
      at = end + 1;
      if (part.empty() || part == ".") continue;
      if (!add(part)) return false;
    }
    out_.text_[out_.length_] = '\0';
    return true;
  }

  // Returns false if the path does not fit, contains "..", or ends in a slash or a dot. No record
  // has such a path.
  bool append(std::string_view path, bool is_last) {
    for (std::size_t at = 0; at < path.size();) {
      const std::size_t end = std::min(path.find('/', at), path.size());
      const std::string_view part = path.substr(at, end - at);
      const bool last = is_last && end + 1 >= path.size();
      at = end + 1;
      if (part.empty() || part == ".") {
        if (last) return false;
        continue;
      }
      if (part == ".." || (last && end < path.size())) return false;
      if (!add(part)) return false;
    }
    out_.text_[out_.length_] = '\0';
    return out_.length_ != 0;
  }
  // Copies a path that needs no changes. Returns false if the path ends in a slash or is too long.
  bool copy(std::string_view path) {
    if (path.back() == '/' || path.size() >= PATH_MAX) return false;
    std::memcpy(out_.text_, path.data(), path.size());
    out_.text_[path.size()] = '\0';
    out_.length_ = path.size();
    return true;
  }

  // Resolves ".." by text alone. The result is wrong if the component before ".." is a link.
  bool fold(std::string_view path) {
    for (std::size_t at = 0; at < path.size();) {
      const std::size_t end = std::min(path.find('/', at), path.size());
      const std::string_view part = path.substr(at, end - at);
      at = end + 1;
      if (part == "..") {
        const std::size_t slash = out_.key().rfind('/');
        out_.length_ = slash == std::string_view::npos ? 0 : slash;
      } else if (!append(part, false) && !part.empty() && part != ".") {
        return false;
      }
    }
    return true;
  }

 private:
  bool add(std::string_view part) {
    if (out_.length_ + part.size() + 2 > PATH_MAX) return false;
    out_.text_[out_.length_++] = '/';
    std::memcpy(out_.text_ + out_.length_, part.data(), part.size());
    out_.length_ += part.size();
    return true;
  }

  CoveredPath& out_;
};

}  // namespace cube::shim
