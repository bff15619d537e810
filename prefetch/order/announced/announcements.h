// A source of the paths that the job itself announces: each rank announces its paths, in its order,
// on a socket next to the region (doc/FORMAT.md). Only the leader of a node has one.
//
// A separate thread with its own fd table listens. A client that breaks the protocol or dies is
// dropped. A client's socket is read no faster than its paths are taken. Answers to a client that
// does not read its socket are dropped. Paths outside the prefixes are left out and reported once.
//
// Thread safety: next() and settled() from one thread; arrived() is called on the listening thread.
// next() and the destructor write the log lines, because the listening thread has no stderr.
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
  // Called when next() returned nothing before and now has something. It must be short, because
  // clients wait while it runs.
  void (*arrived)(void*) = nullptr;
  void* argument = nullptr;
  // The listening thread calls it in each iteration, at least once a second, and before it takes
  // the socket's name. False: this process does not lead, or no longer, so the name belongs to
  // another process. Null: there is no other process.
  bool (*leads)(void*) = nullptr;
};

class AnnouncementServer;

class Announcements final : public PathSource {
 public:
  // Null: `why` is one line. A socket file that a dead process of this user has left is replaced;
  // any other file is left alone.
  static std::unique_ptr<Announcements> start(AnnouncementsOptions options, std::string& why);
  // The destructor takes at most 20 ms. arrived() is not called afterwards. In a forked child it
  // does nothing.
  ~Announcements() override;
  Announcements(const Announcements&) = delete;
  Announcements& operator=(const Announcements&) = delete;

  // Removes the socket and tells the listening thread to end. Callable by any thread, also twice.
  void stop_listening();
  // Call it if another process leads, so that this one does not remove the socket's name.
  void leave_name();

  // The reader whose file next() would return, if there is one.
  std::optional<std::uint32_t> next_reader() const;
  // Each client is a reader, whose number is never 0 and is not reused soon. Never returns `end`.
  Next next(PlannedFile& file) override;
  void settled(std::uint32_t reader, std::uint32_t files) override;
  std::uint64_t passed(std::uint32_t reader) override;
  // A path that next() gave cannot be fetched. A later next() logs it, once for each reason.
  void refuse(Refusal reason, const std::string& path);

 private:
  void end();
  explicit Announcements(CrewPtr<AnnouncementServer> server);

  const CrewPtr<AnnouncementServer> server_;
  const int pid_;
};

}  // namespace cube::prefetch
