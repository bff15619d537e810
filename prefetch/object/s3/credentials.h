// The keys that sign requests. They are searched for in the order of AWS's own tools:
// CUBESHIM_S3_ANONYMOUS, the environment, a web identity token, the profile (keys, role of a web
// identity, credential_process), the container's endpoint, the instance's metadata service. Secrets
// are never logged: only `source` may be printed. Thread safety: KeptCredentials is thread-safe.
// The other functions are pure functions of the environment and of files.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <future>
#include <mutex>
#include <string>

#include "cache/base/result.h"
#include "prefetch/object/s3/profile.h"

namespace cube::s3 {

struct Credentials {
  std::string access_key = {}, secret = {}, token = {};
  std::time_t expires = 0;  // 0: never
  std::string source = {};  // for messages: "the environment"

  bool is_anonymous() const { return access_key.empty(); }
};

// Searches for credentials. On failure, `why` lists in one line the sources that were tried.
base::Result<Credentials> find_credentials(const Environment& environment, std::string& why);

// Parses a time such as "2026-11-27T02:05:00.123Z" or "2026-11-27T02:05:00+05:30". Without a zone,
// the time is in UTC. Returns 0 if the text is not a time.
std::time_t parse_iso_time(const std::string& text);

// Renews credentials before they expire. A renewal runs in its own thread while the old credentials
// are still valid.
class KeptCredentials {
 public:
  using Find = std::function<base::Result<Credentials>(std::string& why)>;
  explicit KeptCredentials(Find find) : find_(std::move(find)) {}
  ~KeptCredentials();
  KeptCredentials(const KeptCredentials&) = delete;
  KeptCredentials& operator=(const KeptCredentials&) = delete;

  // Waits only if no valid credentials are kept. If the last search found none, waits at most once
  // in ten seconds, and otherwise returns the old ones, which the store might still accept. Returns
  // EACCES if no credentials were found; why() gives the reason.
  base::Result<Credentials> current(std::time_t now);
  // Call this if the store has refused these credentials. The next current() searches for others.
  void refused(const Credentials& credentials);
  std::string why() const;

 private:
  struct Found {
    base::Result<Credentials> credentials;
    std::string why;
  };
  void start_renewal(std::time_t now);
  void take_renewal(std::time_t now);
  bool was_tried_within(std::time_t seconds, std::time_t now) const;

  const Find find_;
  mutable std::mutex mutex_;
  base::Result<Credentials> credentials_ = base::fail(EACCES);
  std::string why_;
  std::future<Found> renewal_;
  std::time_t last_try_ = 0;
  bool is_refused_ = false;  // the store has refused credentials_
  bool was_vain_ = false;    // the last search has found none that are valid
};

}  // namespace cube::s3
