// The keys with which requests are signed, and the chain of places where they are found, in the
// order of AWS's own tools: CUBESHIM_S3_ANONYMOUS, the environment, a web identity token, the
// profile (keys, role of a web identity, credential_process), the container's endpoint, the
// instance's metadata service. Secrets are never logged: only `source` may be printed. Thread
// safety: KeptCredentials all; the rest are pure functions over the environment and files.
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
  std::string source = {};  // for people: "the environment"

  bool is_anonymous() const { return access_key.empty(); }
};

// Looks for credentials. On failure `why` says, in one line, what was tried.
base::Result<Credentials> find_credentials(const Environment& environment, std::string& why);

// "2026-11-27T02:05:00Z". 0: not a time.
std::time_t parse_iso_time(const std::string& text);

// Credentials that are renewed before they expire. A renewal runs in a thread of its own while the
// old ones still hold.
class KeptCredentials {
 public:
  using Find = std::function<base::Result<Credentials>(std::string& why)>;
  explicit KeptCredentials(Find find) : find_(std::move(find)) {}
  ~KeptCredentials();
  KeptCredentials(const KeptCredentials&) = delete;
  KeptCredentials& operator=(const KeptCredentials&) = delete;

  // Waits only if there are none that hold. EACCES: none were found; why() says why.
  base::Result<Credentials> current(std::time_t now);
  // The store has refused these: the next call of current() looks for others.
  void refused(const Credentials& credentials);
  std::string why() const;

 private:
  struct Found {
    base::Result<Credentials> credentials;
    std::string why;
  };
  void start_renewal(std::time_t now);
  void take_renewal();

  const Find find_;
  mutable std::mutex mutex_;
  base::Result<Credentials> credentials_ = base::fail(EACCES);
  std::string why_;
  std::future<Found> renewal_;
  std::time_t last_try_ = 0;
};

}  // namespace cube::s3
