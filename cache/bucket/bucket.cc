#include "cache/bucket/bucket.h"

#include <cerrno>
#include <climits>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/hash.h"
#include "cache/base/log.h"
#include "cache/bucket/copy_socket.h"

namespace cube::cache {
namespace {

constinit std::atomic<BucketRegion (*)()> g_find{nullptr};
constinit std::atomic<Mailbox::Start> g_start{nullptr};

BucketRegion find_region() {
  const auto find = g_find.load(std::memory_order_acquire);
  return find != nullptr ? find() : BucketRegion{};
}

// Listings made at or after this time (base::boot_ns) are still valid.
std::uint64_t good_since(const BucketRegion& in) {
  const std::uint64_t now = base::boot_ns();
  switch (in.consistency.kind) {
    case base::ConsistencyKind::immutable:
      return in.region->job_row(in.region->own_job()).started_ns;
    case base::ConsistencyKind::ttl: {
      const std::uint64_t ttl = in.consistency.ttl_seconds * 1'000'000'000ULL;
      return now < ttl ? 0 : now - ttl;
    }
    case base::ConsistencyKind::open: break;
  }
  return now;
}

bool is_of_store(int error) { return error == EIO || error == EACCES || error == ETIMEDOUT; }

// The error that the program gets. EIO replaces errors of the gateway's start and of the region,
// because these would mislead a program.
int as_seen(MailKind kind, int error) {
  const bool is_known = error == 0 || (error == ESTALE && kind == MailKind::check) ||
                        error == ENOENT || error == EFBIG || error == ENOSPC ||
                        error == ENAMETOOLONG || error == EINTR || is_of_store(error);
  return is_known ? error : EIO;
}

MailPart part_of(const FileStat& stat, std::uint64_t begin, std::uint64_t end,
                 std::uint64_t ahead_end) {
  const ObjectInfo object = BucketMount::object_of(stat);
  return {.size = object.size,
          .modified = static_cast<std::uint64_t>(object.modified),
          .etag_mark = object.etag_mark,
          .begin = begin,
          .end = end,
          .ahead_end = ahead_end};
}

MailPart whole_of(const FileStat& stat) { return part_of(stat, 0, MailPart::k_whole, 0); }

}  // namespace

void Bucket::use_region(BucketRegion (*find)()) { g_find.store(find, std::memory_order_release); }
void Bucket::use_start(Mailbox::Start start) { g_start.store(start, std::memory_order_release); }

bool Bucket::has_just_timed_out() const {
  const std::uint64_t at = timed_out_ns_.load(std::memory_order_relaxed);
  return at != 0 && base::coarse_monotonic_ns() - at < 1'000'000'000;
}

void Bucket::note_timeout() const {
  timed_out_ns_.store(base::coarse_monotonic_ns(), std::memory_order_relaxed);
}

void Bucket::tell(const Mailbox& mailbox, const Mailbox::Post& post, int error) const {
  if (!mailbox.is_to_be_told(error)) return;
  char room[Mailbox::k_why];
  const std::string_view why = mailbox.why(post, room);
  if (!why.empty()) {
    base::log(error == 0 ? base::LogLevel::warn : base::LogLevel::error, "{}", why);
  } else {
    base::log(base::LogLevel::error, "{}: {}", mount_.url(),
              error == ETIMEDOUT ? "no answer in time (CUBESHIM_S3_TIMEOUT)"
                                 : base::text_of_error(error));
  }
}

int Bucket::ask(const BucketRegion& in, MailKind kind, std::string_view key, std::uint64_t since_ns,
                bool is_prefetch, Mailbox::Post& post, const MailPart& part) const {
  if (has_just_timed_out()) return ETIMEDOUT;
  // The wait is this much longer than the time for which the gateway keeps trying.
  constexpr std::uint64_t k_more_ns = 5'000'000'000;
  Mailbox mailbox(*in.region, BucketMount::store());
  const int error =
      mailbox.ask({.kind = kind,
                   .is_prefetch = is_prefetch,
                   .prefix = mount_.prefix(),
                   .url = mount_.url(),
                   .below = mount_.below(key),
                   .since_ns = since_ns,
                   .part = part},
                  g_start.load(std::memory_order_acquire),
                  // stat and readdir never fail with EINTR.
                  {.longest_ns = in.timeout_ns + k_more_ns,
                   .ends_on_signal = kind != MailKind::listing && kind != MailKind::check},
                  post);
  const int seen = as_seen(kind, error);
  // The gateway may attach a warning to a successful answer.
  if (is_of_store(error) || (error == 0 && mailbox.has_why(post))) tell(mailbox, post, error);
  if (seen == ETIMEDOUT) note_timeout();
  return seen;
}

Pin Bucket::find_listing(const BucketRegion& in, std::string_view directory,
                         std::uint64_t since_ns) const {
  // All views see the same objects of a bucket.
  Pin pin = in.ram->find_of_origin(mount_.origin_id(), RecordKind::directory, directory,
                                   base::hash_path(directory));
  const bool is_right =
      pin && ObjectNames::of(*pin) && pin->verified_ns.load(std::memory_order_relaxed) >= since_ns;
  if (!is_right) pin.release();
  return pin;
}

int Bucket::error_above(const BucketRegion& in, std::string_view directory,
                        std::uint64_t since_ns) const {
  while (directory.size() > mount_.prefix().size()) {
    const auto [above, name] = base::split_path(directory);
    if (const Pin listing = find_listing(in, above, since_ns); listing) {
      const auto entry = ObjectNames::of(*listing)->find(name);
      return !entry ? ENOENT : entry->is_directory ? 0 : ENOTDIR;
    }
    directory = above;
  }
  return 0;
}

base::Result<Pin> Bucket::ask_for_listing(const BucketRegion& in, std::string_view directory,
                                          std::uint64_t since_ns) const {
  Mailbox::Post post;
  const int error = ask(in, MailKind::listing, directory, since_ns, /*is_prefetch=*/false, post);
  if (error != 0) return base::fail(error == ENOSPC || error == EFBIG ? EIO : error);
  Pin listing = find_listing(in, directory, 0);
  if (!listing) return base::fail(EIO);
  return listing;
}

base::Result<Pin> Bucket::list(std::string_view key) const {
  const BucketRegion in = find_region();
  if (in.region == nullptr) return base::fail(EIO);
  const std::uint64_t since_ns = good_since(in);
  Pin listing = find_listing(in, key, since_ns);
  if (listing) return listing;
  if (const int error = error_above(in, key, since_ns); error != 0) return base::fail(error);
  auto asked = ask_for_listing(in, key, since_ns);
  if (asked || asked.error().value != ENOENT) return asked;
  // The store has nothing at or below this path. The listings of the directories above show why.
  std::string_view directory = key;
  while (directory.size() > mount_.prefix().size()) {
    const auto [above, name] = base::split_path(directory);
    asked = ask_for_listing(in, above, since_ns);
    if (asked) {
      const auto entry = ObjectNames::of(**asked)->find(name);
      return base::fail(entry && !entry->is_directory ? ENOTDIR : ENOENT);
    }
    if (asked.error().value != ENOENT) return asked;
    directory = above;
  }
  return base::fail(ENOENT);
}

base::Result<FileStat> Bucket::stat(std::string_view key) const {
  const std::string_view below = mount_.below(key);
  if (below.empty()) return mount_.stat_of_directory(below);
  const std::string_view parent = base::split_path(key).directory;
  // In mode `open`, each stat asks the store. A new listing would revalidate all files of the
  // directory, so this asks only about the object.
  if (const BucketRegion in = find_region();
      in.region != nullptr && in.consistency.kind == base::ConsistencyKind::open) {
    const Pin former = find_listing(in, parent, 0);
    const auto known = former ? stat_in(former, key) : base::fail(ENOENT);
    if (known && known->is_regular()) {
      const int error = check(in, key, *known);
      if (error == 0) return known;
      if (error != ESTALE && error != ENOENT) return base::fail(error);
    }
  }
  const auto listing = list(parent);
  if (!listing) return base::fail(listing.error().value);
  return stat_in(*listing, key);
}

base::Result<FileStat> Bucket::stat_in(const Pin& listing, std::string_view key) const {
  const std::string_view name = base::split_path(key).name, below = mount_.below(key);
  if (name.size() > NAME_MAX) return base::fail(ENAMETOOLONG);
  const auto names = ObjectNames::of(*listing);
  if (!names) return base::fail(EIO);
  const auto entry = names->find(name);
  if (!entry) return base::fail(ENOENT);
  return entry->is_directory ? mount_.stat_of_directory(below)
                             : mount_.stat_of_object(below, entry->object);
}

int Bucket::check(const BucketRegion& in, std::string_view key, const FileStat& known) const {
  Mailbox::Post post;
  return ask(in, MailKind::check, key, good_since(in), /*is_prefetch=*/false, post,
             whole_of(known));
}

base::Result<FileStat> Bucket::revalidate(std::string_view key, const FileStat& known) const {
  const BucketRegion in = find_region();
  if (in.region == nullptr) return base::fail(EIO);
  // stat() uses a listing of this job, which revalidates all files of the directory at the same
  // time.
  if (in.consistency.kind == base::ConsistencyKind::immutable) return stat(key);
  const Pin listing = find_listing(in, base::split_path(key).directory, good_since(in));
  if (listing) return stat_in(listing, key);
  const int error = check(in, key, known);
  if (error == 0) return known;
  return error == ESTALE || error == ENOENT ? stat(key) : base::fail(error);
}

Pin Bucket::find_object(const BucketRegion& in, std::string_view key, const FileStat& stat) const {
  Pin pin = in.ram->find_of_origin(mount_.origin_id(), RecordKind::file, key, base::hash_path(key));
  if (pin && !pin->stat.is_unchanged_since(stat)) pin.release();
  return pin;
}

int Bucket::fetch(std::string_view key, const FileStat& stat) const {
  const BucketRegion in = find_region();
  if (in.region == nullptr) return EIO;
  if (find_object(in, key, stat)) return 0;
  Mailbox::Post post;
  return ask(in, MailKind::object, key, good_since(in), /*is_prefetch=*/false, post);
}

int Bucket::fetch_ahead(std::string_view key, const FileStat& stat) const {
  const BucketRegion in = find_region();
  if (in.region == nullptr) return EIO;
  Mailbox::Post post;
  return ask(in, MailKind::object, key, good_since(in), /*is_prefetch=*/true, post, whole_of(stat));
}

int Bucket::fetch_blocks(std::string_view key, const FileStat& stat, std::uint64_t begin,
                         std::uint64_t end, std::uint64_t ahead_end) const {
  const BucketRegion in = find_region();
  if (in.region == nullptr) return EIO;
  Mailbox::Post post;
  return ask(in, MailKind::blocks, key, 0, /*is_prefetch=*/false, post,
             part_of(stat, begin, end, ahead_end));
}

base::Result<base::UniqueFd> Bucket::copy(std::string_view key, const FileStat& stat, int flags,
                                          bool is_prefetch, Version version) const {
  const BucketRegion in = find_region();
  if (in.region == nullptr) return base::fail(EIO);
  if (const Pin pin = find_object(in, key, stat); pin)
    return copy_of_bytes(pin->data(), pin->stat, flags);
  // If the gateway dies before its copy is collected, the copy is lost, and is requested again.
  constexpr int k_attempts = 3;
  int error = EIO;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    Mailbox::Post post;
    error = ask(in, MailKind::copy, key, good_since(in), is_prefetch, post,
                version == Version::of_stat ? whole_of(stat) : MailPart{});
    if (error != 0) return base::fail(error);
    auto fd =
        collect_copy(Mailbox(*in.region, BucketMount::store()).socket_path(), post.ticket(), flags);
    if (fd) return fd;
    error = fd.error().value;
    const bool is_gone = error == ECONNREFUSED || error == ENOENT || error == ESTALE ||
                         error == ECONNRESET || error == EPIPE;
    if (!is_gone) return base::fail(error);
  }
  return base::fail(EIO);
}

}  // namespace cube::cache
