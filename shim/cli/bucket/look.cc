// cubeshim ls and cat for s3:// names.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "cache/base/error_text.h"
#include "prefetch/object/s3/whole_object.h"
#include "shim/cli/bucket/session.h"
#include "shim/cli/complaint.h"
#include "shim/cli/printable.h"
#include "shim/cli/text_file.h"

namespace cube::cli {
namespace {

std::string shown_name(std::string_view name) {
  return isatty(STDOUT_FILENO) != 0 ? printable(name) : std::string(name);
}

void print_object(const s3::ListedObject& object, std::string_view name, bool is_long) {
  if (!is_long) return fmt::print("{}\n", shown_name(name));
  std::tm parts{};
  char time[64] = "-";
  if (object.modified != 0 && localtime_r(&object.modified, &parts) != nullptr)
    std::strftime(time, sizeof time, "%Y-%m-%d %H:%M", &parts);
  fmt::print("{:>14} {:>16} {}\n", object.size, time, shown_name(name));
}

// Writes the ranges of an object to standard output in order.
class ToStdout final : public s3::ObjectSink {
 public:
  int begin(const s3::Outcome& /*first*/) override {
    ranges_.clear();
    return 0;
  }
  std::byte* room(std::uint64_t first, std::size_t bytes) override {
    return reinterpret_cast<std::byte*>((ranges_[first].bytes = std::string(bytes, '\0')).data());
  }
  int take(std::uint64_t first, std::size_t /*bytes*/) override {
    ranges_[first].has_come = true;
    while (!ranges_.empty() && ranges_.begin()->second.has_come) {
      if (!write_whole(STDOUT_FILENO, ranges_.begin()->second.bytes)) return errno;
      ranges_.erase(ranges_.begin());
    }
    return 0;
  }

 private:
  struct Range {
    std::string bytes;
    bool has_come = false;
  };
  std::map<std::uint64_t, Range> ranges_;
};

int complain_of(const std::string& uri, const s3::Outcome& outcome) {
  return complain(1, printable(outcome.trouble.empty()
                                   ? fmt::format("{}: {}", uri, base::text_of_error(outcome.error))
                                   : outcome.trouble));
}

}  // namespace

int list_bucket(const std::string& uri, bool is_long, bool is_recursive) {
  const auto name = s3::parse_s3_uri(uri);
  if (!name) return complain(2, uri + " is not of the form s3://BUCKET/PREFIX");
  const auto session = BucketSession::open();
  if (session == nullptr) return 1;
  const std::string directory =
      name->key.empty() || name->key.ends_with('/') ? name->key : name->key + "/";
  std::size_t found = 0;
  s3::Outcome outcome;
  const auto print_page = [&](s3::ListPage& page) {
    found += page.objects.size() + page.prefixes.size();
    for (const auto& prefix : page.prefixes)
      print_object({}, std::string_view(prefix).substr(directory.size()), is_long);
    for (const auto& object : page.objects) {
      // An object with the key of the directory is the directory's marker.
      if (object.key != directory)
        print_object(object, std::string_view(object.key).substr(directory.size()), is_long);
    }
    return true;
  };
  if (!list_pages(
          session->client,
          {.bucket = name->bucket, .prefix = directory, .delimiter = is_recursive ? "" : "/"},
          print_page, outcome))
    return complain_of(uri, outcome);
  if (found != 0 || name->key.empty()) return 0;
  // Nothing lies below the name, but an object may have this name.
  const auto print_exact = [&](s3::ListPage& page) {
    for (const auto& object : page.objects) {
      if (object.key != name->key) continue;
      print_object(object, object.key, is_long);
      ++found;
    }
    return false;
  };
  if (!list_pages(session->client, {.bucket = name->bucket, .prefix = name->key}, print_exact,
                  outcome))
    return complain_of(uri, outcome);
  return found != 0 ? 0 : complain(1, printable(uri) + ": no object has this name or prefix");
}

int print_objects(const std::vector<std::string>& uris) {
  std::unique_ptr<BucketSession> session;
  int status = 0;
  for (const auto& uri : uris) {
    const auto name = s3::parse_s3_uri(uri);
    if (!name || name->key.empty()) return complain(2, uri + " is not of the form s3://BUCKET/KEY");
    if (session == nullptr) session = BucketSession::open();
    if (session == nullptr) return 1;
    s3::get_whole(session->client, name->bucket, name->key, std::make_shared<ToStdout>(), {},
                  [&](s3::Outcome& outcome) {
                    if (outcome.error != 0) status = complain_of(uri, outcome);
                  });
    session->client.run_until_idle();
  }
  return status;
}

}  // namespace cube::cli
