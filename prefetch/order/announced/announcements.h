// The paths that the job itself says it will read: each rank announces its paths in its order on a
// socket beside the region (doc/FORMAT.md). Only the leader of a node has one.
//
// A thread of its own listens, with an fd table of its own. A client that sends what it should not,
// or dies, is dropped; one that announces much is read no faster than its paths are taken, and one
// that does not read its answers gets none. Paths outside the prefixes are left out and told once.
// Thread safety: next() and settled() from one thread, arrived() is called from the one that
// listens. Lines of log are written by next() and the destructor, for the thread that listens has
// no stderr.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prefetch/order/path_source.h"
#include "prefetch/order/refusals.h"

namespace cube::prefetch {

struct AnnouncementsOptions {
  std::string socket;                 // its whole path
  std::vector<std::string> prefixes;  // normalised
  // next() had nothing to give, and now it has. Short, for clients wait meanwhile.
  void (*arrived)(void*) = nullptr;
  void* argument = nullptr;
  // Called at each turn of the thread that listens, once a second or more, and before it takes the
  // name. False: this process does not lead (any more), so the name is another's. Null: nobody else
  // is there.
  bool (*leads)(void*) = nullptr;
};

class AnnouncementServer;

class Announcements final : public PathSource {
 public:
  // Null: `why` is one line. A socket file that a dead process of ours left is replaced, anything
  // else there stays.
  static std::unique_ptr<Announcements> start(AnnouncementsOptions options, std::string& why);
  // Takes 20 ms at most; arrived() is not called any more. In a forked child nothing is done.
  ~Announcements() override;
  Announcements(const Announcements&) = delete;
  Announcements& operator=(const Announcements&) = delete;

  // The socket goes, and the thread that listens is told to end. By any thread, also twice.
  void stop_listening();
  // Another process leads, so this one must not remove the name of the socket.
  void leave_name();

  // The reader whose file next() gives, if it gives one.
  std::optional<std::uint32_t> next_reader() const;
  // A reader is a client, never 0; the number does not come back soon. Never `end`.
  Next next(PlannedFile& file) override;
  void settled(std::uint32_t reader, std::uint32_t files) override;
  std::uint64_t passed(std::uint32_t reader) override;
  // A path that next() gave cannot be fetched; told by a later next(), once for each reason.
  void refuse(Refusal reason, const std::string& path);

 private:
  void end();
  explicit Announcements(std::shared_ptr<AnnouncementServer> server);

  const std::shared_ptr<AnnouncementServer> server_;
  const int pid_;
};

}  // namespace cube::prefetch
