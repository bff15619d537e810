// One worker process and its settings. It runs plain, or under the library in one of its modes. It
// is restarted before its region is full, and after a crash or a hang, which also count as results.
// Thread safety: none.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/differential/log.h"
#include "tests/differential/op.h"
#include "tests/differential/tree.h"

namespace cube::differ {

struct Settings {
  std::string name;  // "plain", "virtual", "real", "virtual-open" ...
  std::string mode;  // CUBESHIM_MODE; empty without the library
  std::string consistency = "immutable";
  std::string cache;  // CUBESHIM_NAME
  std::string base;   // the directory of trees and reports
  // CUBESHIM_BLOCK. With it, each file counts as large, except if some files are really large.
  // Empty: files are served as a whole.
  std::string block;
  std::string ram = {};   // CUBESHIM_RAM, instead of the usual
  bool has_disk = false;  // with CUBESHIM_DISK_DIR
  // The pack, or the URL of the bucket, that is served at `packed_prefix`. Without the library, its
  // source is mounted there, read-only.
  std::string pack = {};
};
inline std::string packed_prefix(const std::string& base) { return base + "/boxed"; }
inline std::string pack_source(const std::string& base) { return base + "/stock"; }

struct Totals {
  unsigned long hits = 0, misses = 0, materialized = 0, full = 0, workers = 0;
  unsigned long block_reads = 0, block_disk = 0;  // reads served from memory; bytes from the disk
};

class Subject {
 public:
  explicit Subject(Settings settings);
  ~Subject();
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  const Settings& settings() const { return settings_; }
  bool is_plain() const { return settings_.mode.empty(); }
  void send(const Tree& tree, bool is_warm, const Sequence& sequence);
  // Returns the log of the last sequence. If the worker crashed or hung, the last line says so.
  std::string receive();
  // How many sequences the worker has played since its last restart.
  unsigned played() const { return played_; }
  void stop();
  // Gives the next worker a new region, because the gateway of a bucket still uses the old region
  // for a while.
  void rename_cache(const std::string& name) { settings_.cache = name; }
  // Called when no worker uses the disk any more.
  void clear_disk();
  const Totals& totals() const { return totals_; }
  // Returns true if a worker can mount the pack's source at the prefix, for itself and its
  // children.
  static bool can_mount(const std::string& base);

 private:
  void start();
  void add_report();
  std::string end(bool kill);

  Settings settings_;
  std::string report_;
  int log_memfd_;
  std::optional<Log> log_;
  pid_t pid_ = -1, outsider_ = -1;
  int commands_ = -1, answers_ = -1;
  unsigned played_ = 0;
  Totals totals_;
};

}  // namespace cube::differ
