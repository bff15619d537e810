// A fake server that stores records, and nodes that share files through it. Each node is a cache
// with its own region.
#pragma once

#include <sys/stat.h>

#include <map>
#include <mutex>
#include <optional>

#include "cache/tier/cluster/helper_thread.h"
#include "tests/cache/cluster/fake_server.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {

// A server that nodes cannot distinguish from memcached.
class FakeMemcached {
 public:
  struct Item {
    std::string value;  // empty: a lease
    std::uint64_t cas = 0;
  };
  // `hook` answers instead of the server. If it returns no value, the server answers.
  using Hook = std::function<std::optional<std::string>(const std::string& line)>;
  explicit FakeMemcached(Hook hook = {})
      : hook_(std::move(hook)), server_([this](const std::string& line) { return answer(line); }) {}

  std::string name() const { return server_.name(); }
  std::map<std::string, Item> items() {
    const std::lock_guard lock(mutex_);
    return items_;
  }
  void put(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    items_[key] = {value, ++cas_};
  }
  void flush() {
    const std::lock_guard lock(mutex_);
    items_.clear();
  }
  // Counts entries without leases.
  std::size_t values() {
    std::size_t n = 0;
    for (const auto& [key, item] : items()) n += item.value.empty() ? 0 : 1;
    return n;
  }

 private:
  std::string answer(const std::string& line) {
    if (hook_) {
      if (const auto said = hook_(line); said) return *said;
    }
    const std::lock_guard lock(mutex_);
    const std::string head = line.substr(0, line.find("\r\n")), word = head.substr(0, 2);
    if (head == "stats") return "END\r\n";
    const std::string key = head.substr(3, head.find(' ', 3) - 3), token = " O" + token_of(head);
    const auto found = items_.find(key);
    const std::size_t cas_at = head.find(" C");
    const bool has_cas = cas_at != std::string::npos;
    if (word == "mg") {
      const bool wants_lease = head.find(" N") != std::string::npos,
                 is_look = head.find(" s ") != std::string::npos;
      if (found == items_.end() && !wants_lease) return "EN\r\n";
      Item& item = items_[key];
      const bool is_won = found == items_.end();
      if (is_won) item.cas = ++cas_;
      const std::string size = std::to_string(item.value.size()),
                        cas = " c" + std::to_string(item.cas);
      if (is_look) return "HD s" + size + cas + token + "\r\n";
      return "VA " + size + cas + token +
             (is_won               ? " W"
              : item.value.empty() ? " Z"
                                   : "") +
             "\r\n" + item.value + "\r\n";
    }
    if (has_cas && found == items_.end()) return "NF" + token + "\r\n";
    if (has_cas && found->second.cas != std::strtoull(head.c_str() + cas_at + 2, nullptr, 10))
      return "EX" + token + "\r\n";
    if (word == "md") {
      items_.erase(key);
      return "HD" + token + "\r\n";
    }
    if (!has_cas && found != items_.end()) return "NS" + token + "\r\n";
    items_[key] = {line.substr(line.find("\r\n") + 2), ++cas_};
    return "HD" + token + "\r\n";
  }

  Hook hook_;
  std::mutex mutex_;
  std::map<std::string, Item> items_;
  std::uint64_t cas_ = 0;
  FakeServer server_;
};

template <typename Condition>
bool comes_true(Condition&& condition) {
  const std::uint64_t until = base::monotonic_ns() + k_patience;
  while (!condition()) {
    if (base::monotonic_ns() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}

// The files of all nodes.
struct SharedFiles {
  tests::TempDir dir;
  SharedFiles() { chmod(dir.path().c_str(), 0755); }
  // Sets times as old as those of files in data sets.
  std::string write(const std::string& name, const std::string& content) const {
    const std::string path = dir.write(name, content);
    const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    utimensat(AT_FDCWD, path.c_str(), old, 0);
    return path;
  }
};

// If true, the origin hangs when it is asked for a directory.
inline std::atomic<bool> g_are_looks_held{false};

struct ClusterNode {
  tests::TestCache cache;

  explicit ClusterNode(const std::string& prefix, const std::string& server,
                       std::uint64_t bytes = 16 * tests::k_mib, const std::string& job = {},
                       base::ConsistencyKind consistency = base::ConsistencyKind::immutable)
      : cache(bytes, (set_up(prefix, server, job, consistency),
                      [](base::Config& config) { config = next_config(config); })) {}
  ~ClusterNode() { EXPECT_TRUE(cache->stop_cluster(k_patience)); }
  // Returns the bytes that the cache has served, or no value if it has left the file to the origin.
  std::optional<std::string> open(const std::string& path, int flags = O_RDONLY) {
    const OpenOutcome outcome = cache->open(tests::request_for(path, flags));
    if (outcome.kernel_fd >= 0) close(outcome.kernel_fd);
    return outcome.pin ? std::optional(std::string(tests::bytes_of(*outcome.pin))) : std::nullopt;
  }
  std::uint64_t count(base::Counter counter) const { return cache.count(counter); }
  static void set_threads() {
    g_start_helper_thread.store(+[](void (*body)(void*), void* argument) {
      std::thread([=] {
        while (g_are_looks_held) std::this_thread::yield();
        body(argument);
      }).detach();
      return true;
    });
    g_start_cluster_thread.store(+[](ClusterClient& client, OfferSource& source) {
      if (client.claim_start()) std::thread([&] { client.run(source); }).detach();
    });
  }

 private:
  static inline std::string prefix_, server_, job_;
  static inline base::ConsistencyKind consistency_;
  static base::Config next_config(base::Config config) {
    config.prefixes = {prefix_};
    config.cluster.texts = {server_};
    config.cluster_job = job_;
    config.consistency.kind = consistency_;
    config.cluster_deadline.ms = 10'000;
    config.block = 0;
    return config;
  }
  static void set_up(const std::string& prefix, const std::string& server, const std::string& job,
                     base::ConsistencyKind consistency) {
    prefix_ = prefix;
    server_ = server;
    job_ = job;
    consistency_ = consistency;
    set_threads();
  }
};

}  // namespace cube::cache
