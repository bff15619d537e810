// The mailbox is a fixed table of requests in the region. Processes use the mailbox to ask a
// gateway, the only process of the node that talks to an object store. Each store with its
// credentials has its own gateway. An asker posts a request and waits for the answer. The gateway
// takes the request, does the work, and finishes the request:
//   free -> writing -> posted -> taken -> done -> free
// The bytes do not pass through the mailbox: the gateway puts the requested data into RAM, and the
// answer is an errno.
//
// Invariants: one compare-and-swap changes the whole word of a row (its state, its owner and the
// number of its request). So a process that is too late changes nothing. The rows of a dead asker
// become free when its slot is reaped. If a gateway dies, the next gateway posts again all requests
// that the dead gateway had taken. If an asker leaves its row by a jump, the row becomes free when
// it is overdue and another asker needs a row. During every wait, the asker checks that the gateway
// lives. Patience limits every wait. Thread-safe; only one thread of the gateway calls
// become_gateway and resign. The askers' part is async-signal-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cache/region/region.h"

namespace cube::cache {

enum class MailKind : std::uint8_t {
  // Fetch the file into RAM. If its version is known, room is reserved before the store is asked.
  object = 1,
  listing = 2,  // fetch the listing of the directory into RAM
  copy = 3,     // fetch the file into a copy, which the asker collects with its ticket
  blocks = 4,   // fetch a part of a large file into its chunks (fill/large/large_object.cc)
  check = 5     // ask whether the store still has this version of the file; ESTALE: it has another
                // version
};

// A version of an object, and a part of that version.
struct MailPart {
  // The version. `etag_mark` is ObjectInfo::etag_mark.
  std::uint64_t size = 0, modified = 0, etag_mark = 0;
  // The asker waits for the bytes [begin, end). The bytes up to `ahead_end` are fetched as well.
  // Objects and copies are always fetched as a whole: `end` is then k_whole if they must have this
  // version, and 0 if any version suffices.
  static constexpr std::uint64_t k_whole = UINT64_MAX;
  std::uint64_t begin = 0, end = 0, ahead_end = 0;
};
static_assert(sizeof(MailPart) == MailRow::k_part_words * sizeof(std::uint64_t));

struct MailQuery {
  MailKind kind = MailKind::object;
  bool is_prefetch = false;  // no program waits for the answer
  // The bucket `url` appears at `prefix`. `below` is the path below both. `below` is empty for the
  // root itself.
  std::string_view prefix, url, below;
  // base::boot_ns: a record that was verified at or after this time is fresh enough.
  std::uint64_t since_ns = UINT64_MAX;
  MailPart part = {};  // unused for `listing`
};

// Identifies one request of one row.
struct MailTicket {
  std::uint32_t row = 0;
  std::uint64_t word = 0;
};

// The figures of a gateway for `cubeshim top` (GatewayRow).
struct GatewayFigures {
  std::uint64_t answers = 0, retries = 0, bytes = 0, first_byte_ns = 0;
  std::uint32_t in_flight = 0, most_in_flight = 0;
};
// The sums over all living gateways. Sets `gateways` to their number.
GatewayFigures figures_of_gateways(Region& region, std::uint32_t& gateways);

class Mailbox {
 public:
  // `store`: the mark of the store whose gateway is asked, or whose gateway this process is
  // (GatewayRow::store).
  explicit Mailbox(Region& region, std::uint64_t store = 0) : region_(&region), store_(store) {}

  // The functions for askers.

  struct Patience {
    // The longest wait without progress, and the interval at which the asker checks that the
    // gateway lives.
    std::uint64_t longest_ns = 35'000'000'000, look_again_ns = 50'000'000;
    // True: a signal handler ends the wait if the handler would end a blocking call
    // (interrupting_handlers.h).
    bool ends_on_signal = false;
  };
  // Starts a gateway for this region. Returns 0, or an errno that no gateway returns as its answer.
  using Start = int (*)();

  // The asker's row. The destructor of a Post frees the row.
  class Post {
   public:
    Post() = default;
    Post(Post&& other) noexcept
        : region_(std::exchange(other.region_, nullptr)), ticket_(other.ticket_) {}
    Post& operator=(Post&& other) noexcept {
      if (this != &other) {
        free();
        region_ = std::exchange(other.region_, nullptr);
        ticket_ = other.ticket_;
      }
      return *this;
    }
    ~Post() { free(); }
    const MailTicket& ticket() const { return ticket_; }

   private:
    friend class Mailbox;
    Post(Region* region, const MailTicket& ticket) : region_(region), ticket_(ticket) {}
    void free();

    Region* region_ = nullptr;
    MailTicket ticket_;
  };

  // Asks the gateway, starts one if there is none, and waits for the answer: an errno, or 0.
  // ETIMEDOUT: no answer arrived in time. EINTR: a signal handler ran. ENAMETOOLONG: the query does
  // not fit. `post` holds the row, so that the caller can collect a copy and call why().
  int ask(const MailQuery& query, Start start, const Patience& patience, Post& post);
  // The gateway's message about its answer: one line, or empty. `to` has room for k_why bytes.
  static constexpr std::size_t k_why = MailRow::k_why_words * 8;
  std::string_view why(const Post& post, char* to) const;
  bool has_why(const Post& post) const;
  // Returns true only once for each error and gateway. The caller should then report the error to
  // the user.
  bool is_to_be_told(int error) const;

  // The functions for the gateway.

  // Returns 0, EEXIST if the store already has a gateway, or EUSERS if the region has no row left
  // for another gateway. The process remains the gateway until it ends or calls resign().
  int become_gateway();
  void resign();
  // Publishes the figures. Call it from time to time.
  void publish(const GatewayFigures& figures) const;

  struct Request {
    MailKind kind = MailKind::object;
    bool is_prefetch = false;
    std::string prefix, url, below;
    std::uint64_t since_ns = 0;
    MailPart part;
    MailTicket ticket;
  };
  // Takes the next posted request for this store. Empty: there is no such request.
  std::optional<Request> take();
  // Whether the asker still waits for the answer, or has yet to collect the copy.
  bool is_wanted(const MailTicket& ticket) const;
  // The counters of the asker's process, or of this process if the asker has ended.
  base::Stats& stats_of(const MailTicket& ticket) const;
  // Notes progress, so that the asker continues to wait.
  void tell_progress(const MailTicket& ticket) const;
  // False: the asker no longer wants the answer. `why`: a line for the user, cut if it is long.
  bool finish(const MailTicket& ticket, int error, std::string_view why = {}) const;
  // The count of posted requests. wait_for_news sleeps until the count changes.
  std::uint32_t news() const { return region_->header().mail_news.load(std::memory_order_seq_cst); }
  void wait_for_news(std::uint32_t seen, std::uint64_t at_most_ns) const;

  // Whether the store's gateway lives.
  bool has_gateway() const;
  // The path of the Unix socket on which the gateway passes copies to processes.
  std::string socket_path() const;
  // `socket`: eight hex digits that distinguish the gateways of a region. If the path would be too
  // long for a socket's address, a hash of the region's path replaces the region's name.
  static std::string socket_path_of(const std::string& region_path, std::string_view socket);

 private:
  std::optional<MailTicket> claim_row() const;
  bool free_overdue_rows() const;
  // Waits for a free row. Empty: no row became free within the time of `patience`.
  std::optional<MailTicket> await_row(const Patience& patience) const;
  int post(const MailQuery& query, const Patience& patience, Post& post) const;
  int wait(const MailTicket& ticket, Start start, const Patience& patience) const;
  int need_gateway(Start start) const;
  // Null: the store has no gateway, dead or alive.
  GatewayRow* row_of_gateway() const;
  std::atomic<std::uint64_t>& start_due_ns() const;

  Region* region_;
  std::uint64_t store_;
  GatewayRow* own_ = nullptr;
  std::uint32_t next_row_ = 0;  // the first row that take() will examine
};

// Frees the rows of a process that has ended, and its place as the gateway.
void forget_mail_of(Region& region, std::uint32_t process);

}  // namespace cube::cache
