// A source of the paths that the job itself announces. Each rank announces its paths, in its order,
// on a socket next to the region (doc/FORMAT.md). Only the leader of a node has this source.
//
// A separate thread with its own fd table listens. It drops a client that breaks the protocol or
// dies. It reads a client's socket no faster than the client's paths are taken. Answers to a client
// that does not read its socket are dropped. Paths outside the prefixes are left out and reported
// once.
//
// Thread safety: only one thread may call next() and settled(). arrived() is called on the
// listening thread. next() and the destructor write the log lines, because the listening thread has
// no stderr.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prefetch/order/path_source.h"
#include "prefetch/order/refusals.h"
#include "prefetch/threads/thread_crew.h"

namespace cube::prefetch {

struct AnnouncementsOptions {
  std::string socket;                 // its whole path
  std::vector<std::string> prefixes;  // normalised
  // Called when next() has returned no path and a path has arrived since. It must be short, because
  // clients wait while it runs.
  void (*arrived)(void*) = nullptr;
  void* argument = nullptr;
  // The listening thread calls it in each iteration, at least once a second, and before it creates
  // the socket's name. It returns false if this process does not lead or no longer leads, so that
  // the name belongs to another process. Null if there is no other process.
  bool (*leads)(void*) = nullptr;
};

class AnnouncementServer;

class Announcements final : public PathSource {
 public:
  // Returns null on failure; `why` is then one line. Replaces a socket file that a dead process of
  // this user has left, and leaves any other file alone.
  static std::unique_ptr<Announcements> start(AnnouncementsOptions options, std::string& why);
  // The destructor takes at most 20 ms, and arrived() is not called afterwards. In a forked child,
  // the destructor does nothing.
  ~Announcements() override;
  Announcements(const Announcements&) = delete;
  Announcements& operator=(const Announcements&) = delete;

  // Removes the socket and tells the listening thread to end. Callable by any thread, and more than
  // once.
  void stop_listening();
  // Call this if another process leads. From then on, this process does not remove the socket's
  // name.
  void leave_name();

  // The reader whose file next() would return; empty if next() would return none.
  std::optional<std::uint32_t> next_reader() const;
  // Each client is a reader. A reader's number is never 0 and is not reused soon. next() never
  // returns `end`.
  Next next(PlannedFile& file) override;
  void settled(std::uint32_t reader, std::uint32_t files) override;
  std::uint64_t passed(std::uint32_t reader) override;
  // Notes that a path from next() cannot be fetched. A later next() logs one line for each reason.
  void refuse(Refusal reason, const std::string& path);

 private:
  void end();
  explicit Announcements(CrewPtr<AnnouncementServer> server);

  const CrewPtr<AnnouncementServer> server_;
  const int pid_;
};

}  // namespace cube::prefetch
