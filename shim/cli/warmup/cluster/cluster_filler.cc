#include "shim/cli/warmup/cluster/cluster_filler.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "cache/base/clock.h"
#include "cache/base/path.h"
#include "cache/base/process/view.h"
#include "cache/record/recent_change.h"
#include "cache/region/writers.h"
#include "cache/tier/cluster/home_server.h"
#include "cache/tier/cluster/limits/token_bucket.h"
#include "cache/tier/cluster/meta_protocol.h"
#include "cache/tier/shared/cluster_identity.h"
#include "cache/tier/shared/cluster_path_rights.h"

namespace cube::cli {
namespace {

using cache::MetaAnswer;
using cache::MetaCommand;
using cache::Record;
using Clock = PoolTalk::Clock;
using Kind = MetaAnswer::Kind;
using std::chrono::milliseconds;

// The duration of a lease, which is long enough to read and send a file. If a node dies, another
// node can fetch the file after this time.
constexpr unsigned k_lease_s = 30, k_most_failures = 4;
constexpr milliseconds k_patience(2000), k_send_patience(20'000), k_rest(2000), k_until_look(100),
    k_pause(5);
constexpr std::uint64_t k_token = 1, k_one_request = 128 << 10, k_kept_room = 4 << 20,
                        k_recent_s = 60;
constexpr std::size_t k_known_paths = 100'000;

bool is_recent(const cache::FileTime& time, std::uint64_t now_ns) {
  return time.seconds + static_cast<std::int64_t>(k_recent_s) >
         static_cast<std::int64_t>(now_ns / 1'000'000'000);
}

std::uint64_t sum_of(const cache::ClusterHead& head, std::uint64_t data) {
  return head.size + data + head.padding;
}

// Returns the memory for files that were read but not yet sent. This memory is small enough that
// its content can be sent long before the leases end.
std::uint64_t most_memory(const base::Config& config) {
  constexpr std::uint64_t k_most = 256 << 20, k_seconds = 8;
  return config.cluster_fill >= k_most
             ? k_most
             : std::min(k_most, k_seconds * config.cluster_fill * config.cluster.texts.size());
}

std::string_view text_of(const void* bytes, std::size_t size) {
  return {static_cast<const char*>(bytes), size};
}

}  // namespace

ClusterFill::ClusterFill(const base::Config& c)
    : config(c), paths(c), tags(cache::cluster_tags(c)), jobs(most_memory(c)) {
  for (const std::string& name : c.cluster.texts) {
    auto server = std::make_unique<Server>();
    server->name = name;
    std::string why;
    if (const auto address = look_up_server(name, Clock::now() + k_patience, why)) {
      server->address = *address;
      server->has_address = true;
    }
    servers.push_back(std::move(server));
  }
}

void ClusterFiller::run() {
  while (true) {
    std::optional<ClusterJob> job = fill_->jobs.take();
    if (!job) return;
    fill(*job);
  }
}

void ClusterFiller::leave_out(ClusterJob& job, NotShared why, int error) {
  fill_->jobs.done({{.file = std::move(job.file), .why = why, .error = error}});
}

void ClusterFiller::server_failed(ClusterJob& job, std::size_t server) {
  Server& of = *fill_->servers[server];
  talks_[server].close();
  const std::uint64_t now = base::monotonic_ns();
  // If several threads fail at the same time, only the first sets the end of the pause.
  if (now >= of.rests_until_ns)
    of.rests_until_ns = now + static_cast<std::uint64_t>(k_rest.count()) * base::k_ns_per_ms;
  if (++job.failures >= k_most_failures || !of.has_address)
    return leave_out(job, NotShared::no_server);
  fill_->jobs.again(std::move(job), k_rest + k_pause);
}

PoolTalk* ClusterFiller::talk_to(std::size_t server) {
  const Server& of = *fill_->servers[server];
  PoolTalk& talk = talks_[server];
  if (talk.is_open()) return &talk;
  if (!of.has_address || base::monotonic_ns() < of.rests_until_ns) return nullptr;
  return talk.open(of.address, fill_->login, Clock::now() + k_patience) ? &talk : nullptr;
}

void ClusterFiller::fill(ClusterJob& job) {
  const auto place = fill_->paths.place_of(job.file.path);
  const auto is_below = [&](const auto& origin) {
    return base::is_at_or_below(job.file.path, origin.prefix);
  };
  const bool is_packed = std::ranges::any_of(fill_->config.origins, is_below) ||
                         std::ranges::any_of(fill_->config.buckets, is_below);
  if (!place || is_packed) return leave_out(job, NotShared::outside);
  Lease lease{.key = cache::ClusterKey(fill_->config.cluster_name, place->origin, place->below),
              .server = 0,
              .cas = 0};
  lease.server = cache::home_of_key(fill_->config.cluster.texts, lease.key.hash());
  PoolTalk* const talk = talk_to(lease.server);
  if (talk == nullptr) return server_failed(job, lease.server);
  const MetaCommand command = MetaCommand::lease(lease.key.text(), k_token, k_lease_s);
  const std::string_view parts[] = {command.text()};
  std::string line;
  const auto end = Clock::now() + k_patience;
  if (!talk->send(parts, end) || !talk->read_line(line, end))
    return server_failed(job, lease.server);
  const MetaAnswer answer = cache::parse_meta_answer(line);
  // A full server has no room for a lease, either, and its answer says that it is full.
  if (answer.kind == Kind::none || answer.kind == Kind::full)
    return leave_out(job, NotShared::no_room);
  if (answer.kind != Kind::done || !answer.has_size || !answer.has_cas)
    return server_failed(job, lease.server);
  if (answer.size != 0) {
    ++(job.was_taken ? fill_->by_others : fill_->there);
    return fill_->jobs.done();
  }
  if (!answer.is_won) {
    job.was_taken = true;
    return fill_->jobs.again(std::move(job), k_until_look);
  }
  lease.cas = answer.cas;
  bring(job, *place, lease);
}

void ClusterFiller::give_back(const Lease& lease) {
  PoolTalk& talk = talks_[lease.server];
  const MetaCommand command = MetaCommand::remove(lease.key.text(), k_token, lease.cas);
  const std::string_view parts[] = {command.text()};
  std::string line;
  const auto end = Clock::now() + k_patience;
  if (talk.is_open() && talk.send(parts, end)) talk.read_line(line, end);
}

void ClusterFiller::bring(ClusterJob& job, const cache::ClusterPaths::Place& place, Lease& lease) {
  const auto refuse = [&](NotShared why, int error = 0) {
    give_back(lease);
    leave_out(job, why, error);
  };
  const std::string& path = job.file.path;
  const bool with_private = fill_->config.cluster_trust;
  cache::RecordContent content;
  content.path = path;
  content.fetched_ns = base::wall_ns();
  const auto file =
      cache::MountFile::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, nullptr);
  if (!file)
    return refuse(file.error().value == ENOENT ? NotShared::missing : NotShared::unreadable,
                  file.error().value);
  content.stat = file->stat();
  content.rights = base::current_rights();
  content.physical = file->is_physical(path);
  if ((content.stat.mode & S_IFMT) == S_IFDIR) return refuse(NotShared::directory);
  if (!content.stat.is_regular()) return refuse(NotShared::not_a_file);
  if (content.stat.size > fill_->config.max_file) return refuse(NotShared::too_large);
  if (!with_private && ((content.stat.mode & S_IROTH) == 0 ||
                        !is_public(content.physical ? path.substr(0, path.rfind('/')) : path)))
    return refuse(NotShared::restricted);
  const std::uint64_t size =
      cache::plan_record(0, place.below.size(), content.stat.size, cache::RecordShape::compact).end;
  if (size >= fill_->servers[lease.server]->full_from) return refuse(NotShared::no_room);
  const cache::RecordPlan plan =
      cache::plan_record(0, path.size(), content.stat.size, cache::RecordShape::compact);
  if (!fill_->jobs.take_memory(plan.end)) return refuse(NotShared::unreadable, EINTR);
  const struct Memory {
    ClusterJobs& jobs;
    std::uint64_t bytes;
    ~Memory() { jobs.give_memory(bytes); }
  } memory{fill_->jobs, plan.end};
  if (room_.size() < plan.end) {
    auto room =
        base::Mapping::anonymous((plan.end + cache::k_page - 1) / cache::k_page * cache::k_page);
    if (!room) return refuse(NotShared::unreadable, ENOMEM);
    room_ = std::move(*room);
  }
  // Without a writer, the next change of the file also changes its times.
  if (cache::is_open_for_writing(content.stat, file->fd())) return refuse(NotShared::being_written);
  const auto got = file->read_whole(room_.data() + plan.data, nullptr);
  if (!got)
    return refuse(got.error().value == ESTALE ? NotShared::changing : NotShared::unreadable,
                  got.error().value);
  ++fill_->read;
  fill_->read_bytes += content.stat.size;
  // If a file is read in parts or was changed recently, it may have changed during the fetch.
  const bool is_in_doubt = content.stat.size > k_one_request ||
                           is_recent(content.stat.modified, content.fetched_ns) ||
                           is_recent(content.stat.changed, content.fetched_ns);
  if (is_in_doubt && !file->is_unchanged(nullptr)) return refuse(NotShared::changing);
  cache::write_record(room_.data(), plan, content);
  auto& record = *reinterpret_cast<Record*>(room_.data());
  record.stale.store(0, std::memory_order_relaxed);
  if (!cache::may_be_shared(record, with_private)) return refuse(NotShared::young);
  send(job, place, record, lease);
  if (room_.size() > k_kept_room) room_ = {};
}

// Waits until the token bucket of CUBESHIM_CLUSTER_FILL allows this many bytes. Returns false if
// the command ends first.
bool ClusterFiller::pay(Server& server, std::uint64_t bytes) {
  while (!cache::TokenBucket::take(server.free_ns, base::monotonic_ns(), bytes,
                                   fill_->config.cluster_fill)) {
    if (fill_->jobs.is_stopped()) return false;
    const timespec pause{0,
                         static_cast<long>(k_pause.count() * static_cast<long>(base::k_ns_per_ms))};
    nanosleep(&pause, nullptr);
  }
  return true;
}

void ClusterFiller::send(ClusterJob& job, const cache::ClusterPaths::Place& place,
                         const Record& record, Lease& lease) {
  static constexpr std::byte k_zeros[cache::k_record_alignment]{};
  cache::ClusterHead head;
  write_cluster_head(content_for_cluster(record, place.below), fill_->tags, head);
  const std::uint64_t size = sum_of(head, record.data_size);
  Server& server = *fill_->servers[lease.server];
  PoolTalk& talk = talks_[lease.server];
  if (!pay(server, size)) {
    give_back(lease);
    return leave_out(job, NotShared::unreadable, EINTR);
  }
  MetaCommand command = MetaCommand::replace(lease.key.text(), k_token, size, lease.cas);
  std::string line;
  for (bool is_first = true;; is_first = false) {
    const std::string_view parts[] = {command.text(), text_of(head.bytes, head.size),
                                      text_of(record.data(), record.data_size),
                                      text_of(k_zeros, head.padding), "\r\n"};
    const auto end = Clock::now() + k_send_patience;
    if (!talk.send(parts, end) || !talk.read_line(line, end))
      return server_failed(job, lease.server);
    // The lease has expired, and no other node has taken a new lease.
    if (cache::parse_meta_answer(line).kind != Kind::none || !is_first) break;
    command = MetaCommand::add(lease.key.text(), k_token, size);
  }
  switch (cache::parse_meta_answer(line).kind) {
    case Kind::done:
      ++fill_->shared;
      fill_->shared_bytes += record.data_size;
      return fill_->jobs.done();
    case Kind::refused:  // another node was faster, and has stored the file or will store it
    case Kind::none: job.was_taken = true; return fill_->jobs.again(std::move(job), k_until_look);
    case Kind::full: {
      std::uint64_t from = server.full_from;
      while (size < from && !server.full_from.compare_exchange_weak(from, size)) {
      }
      give_back(lease);
      return leave_out(job, NotShared::no_room);
    }
    case Kind::too_large: give_back(lease); return leave_out(job, NotShared::too_large_there);
    default: return server_failed(job, lease.server);
  }
}

bool ClusterFiller::is_public(const std::string& path) {
  if (const auto known = are_public_.find(path); known != are_public_.end()) return known->second;
  if (are_public_.size() >= k_known_paths) are_public_.clear();
  return are_public_[path] = cache::can_be_reached_by_all(path.c_str());
}

}  // namespace cube::cli
