// The parts that a command needs to access a bucket: the settings of AWS and of cubeshim,
// credentials, a client. Thread safety: one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/settings/config.h"
#include "prefetch/object/s3/client.h"
#include "prefetch/object/s3/uri.h"

namespace cube::cli {

struct BucketSession {
  // If libcurl is missing, or if a setting in the environment is wrong, prints a line on stderr and
  // returns null.
  static std::unique_ptr<BucketSession> open(unsigned most_in_flight = 256);
  static std::unique_ptr<BucketSession> open(const base::Config& config,
                                             unsigned most_in_flight = 256);
  BucketSession(const base::Config& config, s3::ClientOptions options);

  s3::Environment environment;
  s3::KeptCredentials credentials;
  s3::Client client;
};

// Keeps the secrets of this process out of core dumps, and hides them from other processes of the
// user.
void hide_secrets();
// Returns the settings in the environment. Options do not count. If a setting is wrong, prints a
// line on stderr and returns nothing.
std::optional<base::Config> bucket_config();

// Requests all pages of a listing, one by one. On failure, returns false, and `outcome` gives the
// reason.
using TakePage = std::function<bool(s3::ListPage&)>;  // false: no more pages are wanted
bool list_pages(s3::Client& client, s3::ListWish wish, const TakePage& take, s3::Outcome& outcome);

// bench, ls and cat for s3:// names. They return the exit status of the command.
struct BucketBench {
  s3::ObjectName name;
  std::size_t files = 0;
  unsigned seconds = 0;
  bool json = false;
};
int bench_bucket(const BucketBench& bench);
int list_bucket(const std::string& uri, bool is_long, bool is_recursive);
int print_objects(const std::vector<std::string>& uris);

}  // namespace cube::cli
