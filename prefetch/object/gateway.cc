#include "prefetch/object/gateway.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/log.h"
#include "cache/base/process/proc_fd_name.h"
#include "prefetch/object/copy_file.h"
#include "prefetch/object/listed_objects.h"
#include "prefetch/object/object_fill.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_second_ns = 1'000'000'000;
constexpr int k_look_ms = 1000;
constexpr std::size_t k_most_etags = 1 << 16;
// How long an object that no program reads, and its ETag, are kept.
constexpr std::uint64_t k_kept_object_ns = 30 * k_second_ns;

// Wakes the client when a request is posted.
class NewsWatch {
 public:
  NewsWatch(const cache::Mailbox& mailbox, s3::Client& client)
      : thread_([this, &mailbox, &client, seen = mailbox.news()]() mutable {
          while (!is_over_) {
            mailbox.wait_for_news(seen, k_second_ns);
            const std::uint32_t now = mailbox.news();
            if (now != std::exchange(seen, now)) client.wake();
          }
        }) {}
  // Can take up to a second. No process waits for the gateway's end.
  ~NewsWatch() {
    is_over_ = true;
    thread_.join();
  }
  NewsWatch(const NewsWatch&) = delete;
  NewsWatch& operator=(const NewsWatch&) = delete;

 private:
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

std::string etag_key(const s3::ObjectName& name) { return name.bucket + "/" + name.key; }

bool is_version_of(const cache::MailPart& part, const cache::ObjectInfo& object) {
  return part.size == object.size && part.etag_mark == object.etag_mark;
}

std::string id_of(cache::MailKind kind, const cache::Mailbox::Request& request) {
  // For whole objects the part is not compared, because all askers accept the store's current
  // version.
  const cache::MailPart part = kind == cache::MailKind::object ? cache::MailPart{} : request.part;
  return fmt::format("{}\n{}\n{}\n{}\n{} {} {}", static_cast<int>(kind), request.url,
                     request.prefix, request.below, part.size, part.modified, part.etag_mark);
}

// Whether the answer depends only on the time at which the store was asked.
bool is_about_names(cache::MailKind kind) {
  return kind == cache::MailKind::listing || kind == cache::MailKind::check;
}

// Returns true if any process that is not a gateway uses the region. Gateways are not counted,
// because two gateways would keep each other alive.
bool has_programs(cache::Region& region, int fd) {
  const auto gateways =
      std::ranges::count_if(region.header().gateways,
                            [](const cache::GatewayRow& row) { return row.process.load() != 0; });
  return region.count_processes(base::open_fd(base::ProcFdName(fd).c_str(), O_RDONLY)) >
         static_cast<std::uint32_t>(gateways);
}

}  // namespace

// A transfer or a listing. Several askers can wait for it.
struct Gateway::Work {
  Request request;  // of the first asker
  s3::ObjectName name;
  cache::BucketMount mount;
  std::string id;
  std::vector<cache::MailTicket> askers;
  std::uint64_t began_ns = base::boot_ns();
  // Requests that need an answer of the store from after began_ns.
  std::vector<Request> later = {};
  std::uint64_t told_ns = base::monotonic_ns();  // when progress was last reported
};

struct Gateway::ListingWork {
  WorkPointer work;
  std::string directory;  // the prefix of all keys in it
  ListedObjects names;
  std::uint64_t looked_ns = 0;
  bool has_any = false;
  std::string token = {};
};

void Gateway::run(const std::function<bool()>& is_to_end) {
  // Opens the region now, because it can lose its name while the gateway runs.
  if (auto fd = cache_.region().reopen(O_RDONLY); fd) region_fd_ = std::move(*fd);
  const NewsWatch watch(mailbox_, client_);
  for (;;) {
    take_requests();
    publish_figures();
    const std::uint64_t now = base::monotonic_ns();
    if (now - looked_around_ns_ >= k_second_ns) {
      looked_around_ns_ = now;
      if (is_to_end() || !look_around()) return;
    }
    client_.step(k_look_ms);
  }
}

bool Gateway::look_around() {
  cache_.region().reap();
  desk_.drop_unwanted();
  const std::uint64_t now = base::monotonic_ns();
  std::erase_if(objects_, [&](const auto& row) {
    const auto& object = row.second;
    return object == nullptr || (object->is_idle() && now - object->used_ns() > k_kept_object_ns);
  });
  const bool has_objects =
      std::ranges::any_of(objects_, [](const auto& row) { return !row.second->is_idle(); });
  if (has_programs(cache_.region(), region_fd_.get()) || !works_.empty() || has_objects) {
    alone_since_ns_ = 0;
  } else if (alone_since_ns_ == 0) {
    alone_since_ns_ = now;
  }
  return alone_since_ns_ == 0 || now - alone_since_ns_ < options_.linger_ns;
}

void Gateway::take_requests() {
  // Reads the news before the rows, so that a request that is posted in between counts as news in
  // the next round.
  const std::uint32_t news = mailbox_.news();
  if (taken_news_ == news) return;
  taken_news_ = news;
  for (;;) {
    auto request = mailbox_.take();
    if (!request) return;
    take(std::move(*request));
  }
}

void Gateway::take(Request request) {
  request.since_ns = std::min(request.since_ns, base::boot_ns());
  auto name = s3::parse_s3_uri(request.url);
  if (!name) {
    mailbox_.finish(request.ticket, EINVAL, request.url + ": not the name of a bucket");
    return;
  }
  std::string& key = name->key;
  while (key.ends_with('/')) key.pop_back();
  if (!request.below.empty()) key += (key.empty() ? "" : "/") + request.below;
  if (request.kind == cache::MailKind::blocks) return fetch_blocks(request, *name);
  std::string id = id_of(request.kind, request);
  if (const auto found = works_.find(id); found != works_.end()) {
    Work& work = *found->second;
    const bool may_join = !is_about_names(request.kind) || request.since_ns <= work.began_ns;
    if (may_join) {
      work.askers.push_back(request.ticket);
    } else {
      work.later.push_back(std::move(request));
    }
    return;
  }
  cache::BucketMount mount(request.prefix, request.url);
  auto work = std::make_shared<Work>(
      Work{request, *name, std::move(mount), std::move(id), {request.ticket}});
  works_[work->id] = work;
  start(work);
}

void Gateway::start(const WorkPointer& work) {
  switch (work->request.kind) {
    case cache::MailKind::object: return fetch_object(work);
    case cache::MailKind::listing: return fetch_listing(work);
    case cache::MailKind::copy: return fetch_copy(work);
    case cache::MailKind::check: return check_object(work);
    case cache::MailKind::blocks: break;  // has no work
  }
  finish(work, EINVAL, "");
}

// Reports at most once a second. Askers wait much longer than a second before they give up, and
// each report wakes all of them.
void Gateway::tell_progress(Work& work) const {
  const std::uint64_t now = base::monotonic_ns();
  if (now - work.told_ns < k_second_ns) return;
  work.told_ns = now;
  for (const auto& ticket : work.askers) mailbox_.tell_progress(ticket);
  for (const auto& request : work.later) mailbox_.tell_progress(request.ticket);
}

void Gateway::count(const cache::MailTicket& ticket, cache::MailKind kind,
                    const s3::Outcome& outcome) const {
  using base::Counter;
  base::Stats& stats = mailbox_.stats_of(ticket);
  const bool is_data = !is_about_names(kind);
  stats.count(is_data ? Counter::origin_reads : Counter::origin_stats, outcome.answers);
  if (is_data) stats.count(Counter::origin_bytes, outcome.received);
  const bool is_list = kind == cache::MailKind::listing;
  stats.count(is_list ? Counter::bucket_lists : Counter::bucket_gets, outcome.answers);
  if (!is_list) stats.count(Counter::bucket_bytes, outcome.received);
}

void Gateway::publish_figures() const {
  const s3::ClientFigures& figures = client_.figures();
  mailbox_.publish({.answers = figures.answers,
                    .retries = figures.retries,
                    .bytes = figures.bytes,
                    .first_byte_ns = figures.first_byte_ns,
                    .in_flight = client_.in_flight(),
                    .most_in_flight = client_.limit()});
}

void Gateway::answer(const cache::MailTicket& ticket, int error, const std::string& trouble) const {
  std::string why = trouble;
  if (error == EACCES && !options_.who.empty())
    why += fmt::format(" (credentials from {})", options_.who);
  mailbox_.finish(ticket, error, why);
}

void Gateway::finish(const WorkPointer& work, int error, const std::string& trouble) {
  for (const auto& ticket : work->askers) answer(ticket, error, trouble);
  works_.erase(work->id);
  for (Request& request : work->later) take(std::move(request));
}

void Gateway::fetch_object(const WorkPointer& work) {
  const auto& request = work->request;
  const std::string path = request.prefix + "/" + request.below;
  if (const cache::Pin pin = cache_.parts().ram.find_of_origin(
          work->mount.origin_id(), cache::RecordKind::file, path, base::hash_path(path));
      pin && pin->verified_ns.load(std::memory_order_relaxed) >= request.since_ns)
    return finish(work, 0, "");
  const auto fill = std::make_shared<ObjectFill>(
      cache_.parts(), work->mount, work->request.below,
      work->request.is_prefetch ? cache::Lane::background : cache::Lane::demand);
  if (const auto& part = request.part; part.end == cache::MailPart::k_whole) {
    const int error = fill->prepare({part.size, static_cast<std::int64_t>(part.modified),
                                     static_cast<std::uint32_t>(part.etag_mark)});
    if (error != 0) return finish(work, error == EEXIST ? 0 : error, "");
  }
  client_.get({.bucket = work->name.bucket,
               .key = work->name.key,
               .begin =
                   [this, work, fill](const s3::Outcome& head, s3::Transfer::Room& room) {
                     tell_progress(*work);
                     return head.is_size_known ? fill->begin(head, room) : 0;
                   },
               .is_urgent = !work->request.is_prefetch},
              [this, work, fill](s3::Outcome& outcome) {
                if (outcome.error == 0) note_etag(work->name, outcome.etag);
                count(work->askers.front(), cache::MailKind::object, outcome);
                finish(work, fill->end(outcome), outcome.trouble);
              });
}

std::shared_ptr<BlockFetch> Gateway::object_of(const Request& request, const s3::ObjectName& name) {
  auto& object = objects_[id_of(cache::MailKind::blocks, request)];
  const cache::MailPart& part = request.part;
  if (object == nullptr)
    object =
        BlockFetch::begin(cache_, mailbox_, client_,
                          cache::BucketMount(request.prefix, request.url), request.below, name,
                          {part.size, static_cast<std::int64_t>(part.modified),
                           static_cast<std::uint32_t>(part.etag_mark)},
                          [this](const cache::MailTicket& ticket, int error,
                                 const std::string& trouble) { answer(ticket, error, trouble); });
  return object;
}

void Gateway::fetch_blocks(const Request& request, const s3::ObjectName& name) {
  const auto object = object_of(request, name);
  if (object == nullptr) return answer(request.ticket, ENOSPC, "");
  object->ask(request.ticket, request.part);
}

void Gateway::fetch_copy(const WorkPointer& work) {
  const Request& request = work->request;
  const cache::MailPart& part = request.part;
  const bool is_of_version = part.end == cache::MailPart::k_whole;
  s3::WholeOptions options;
  CopyFile::Present present;
  // Takes blocks that are in the region already from there.
  if (const auto object =
          is_of_version && part.size != 0 ? object_of(request, work->name) : nullptr;
      object != nullptr && !object->etag().empty()) {
    options.version = {part.size, static_cast<std::time_t>(part.modified), object->etag()};
    present = [object](std::byte* to, std::uint64_t first, std::size_t bytes) {
      return object->copy(to, first, bytes);
    };
  }
  const auto stat_of = [work](const s3::Outcome& head) {
    return work->mount.stat_of_object(work->request.below,
                                      {head.size, head.modified, cache::mark_of_etag(head.etag)});
  };
  const auto file = std::make_shared<CopyFile>(
      options_.disk_dir, stat_of, [this, work] { tell_progress(*work); }, std::move(present));
  const auto take = [this, work, file, is_of_version](s3::Outcome& outcome) {
    const auto& head = file->head();
    const cache::ObjectInfo found{head.size, head.modified, cache::mark_of_etag(head.etag)};
    count(work->askers.front(), cache::MailKind::copy, outcome);
    if (outcome.error == 0 && is_of_version && !is_version_of(work->request.part, found))
      outcome.error = ESTALE;
    if (outcome.error == 0) {
      const auto made = std::make_shared<const base::UniqueFd>(file->finish());
      for (const auto& ticket : work->askers) desk_.add(ticket, made);
    }
    if (outcome.error == 0 && outcome.ignores_range)
      outcome.trouble = BlockFetch::text_of_no_ranges(work->name);
    const bool has_changed = is_of_version && (outcome.error == ESTALE || outcome.error == ENOENT);
    finish(work, has_changed ? EIO : outcome.error,
           has_changed ? BlockFetch::text_of_change(work->name) : outcome.trouble);
  };
  s3::get_whole(client_, work->name.bucket, work->name.key, file, std::move(options), take);
}

void Gateway::note_etag(const s3::ObjectName& name, const std::string& etag) {
  if (etag.empty()) return;
  if (etags_.size() >= k_most_etags) etags_.clear();
  etags_[etag_key(name)] = etag;
}

// Requests one byte on the condition that the object no longer has the ETag of this version.
void Gateway::check_object(const WorkPointer& work) {
  const cache::MailPart& part = work->request.part;
  const auto known = etags_.find(etag_key(work->name));
  s3::GetWish wish{.bucket = work->name.bucket, .key = work->name.key, .is_urgent = true};
  if (known != etags_.end() && cache::mark_of_etag(known->second) == part.etag_mark)
    wish.if_none_match = known->second;
  // An empty object has no first byte, so no range is requested. If the object has grown, the rest
  // is not read.
  if (part.size != 0) wish.range = {0, 1};
  const auto byte = std::make_shared<std::byte>();
  wish.begin = [byte](const s3::Outcome& /*head*/, s3::Transfer::Room& room) {
    room = {byte.get(), 1};
    return 0;
  };
  wish.may_be_cut = true;
  client_.get(std::move(wish), [this, work](s3::Outcome& outcome) {
    constexpr int k_no_such_range = 416;
    int error = outcome.error;
    count(work->askers.front(), cache::MailKind::check, outcome);
    if (outcome.http.status == k_no_such_range) error = ESTALE;
    if (error == 0 && !outcome.is_unchanged) {
      note_etag(work->name, outcome.etag);
      const cache::ObjectInfo found{outcome.size, outcome.modified,
                                    cache::mark_of_etag(outcome.etag)};
      if (!is_version_of(work->request.part, found)) error = ESTALE;
    }
    finish(work, error, outcome.trouble);
  });
}

void Gateway::fetch_listing(const WorkPointer& work) {
  const auto& request = work->request;
  if (ListedObjects::is_there(cache_.parts().ram, work->mount, request.below, request.since_ns))
    return finish(work, 0, "");
  const std::string& key = work->name.key;
  fetch_page(std::make_shared<ListingWork>(ListingWork{
      .work = work,
      .directory = key.empty() ? "" : key + "/",
      .names = {},
      .looked_ns = base::boot_ns(),
  }));
}

void Gateway::fetch_page(const std::shared_ptr<ListingWork>& listing) {
  const auto take = [this, listing](s3::Outcome& outcome, s3::ListPage& page) {
    Work& work = *listing->work;
    count(work.askers.front(), cache::MailKind::listing, outcome);
    if (outcome.error != 0) return finish(listing->work, outcome.error, outcome.trouble);
    tell_progress(work);
    const std::size_t head = listing->directory.size();
    const auto name_of = [&](std::string_view key) {
      return key.starts_with(listing->directory) ? key.substr(head) : std::string_view();
    };
    listing->has_any |= !page.objects.empty() || !page.prefixes.empty();
    for (const auto& object : page.objects)
      listing->names.add_object(name_of(object.key),
                                {object.size, object.modified, cache::mark_of_etag(object.etag)});
    for (const auto& prefix : page.prefixes) {
      std::string_view name = name_of(prefix);
      if (name.ends_with('/')) name.remove_suffix(1);
      listing->names.add_directory(name);
    }
    if (!page.next_token.empty()) {
      listing->token = page.next_token;
      return fetch_page(listing);
    }
    if (!listing->has_any && !work.request.below.empty()) return finish(listing->work, ENOENT, "");
    const auto made = listing->names.publish(cache_.metadata(), cache_.parts().ram, work.mount,
                                             work.request.below, listing->looked_ns);
    if (listing->names.left_out() + listing->names.hidden() != 0)
      base::log(base::LogLevel::warn, "{} names in s3://{}/{} have no path",
                listing->names.left_out() + listing->names.hidden(), work.name.bucket,
                listing->directory);
    mailbox_.stats_of(work.askers.front()).count(base::Counter::metadata_read);
    if (made) return finish(listing->work, 0, "");
    finish(listing->work, EIO,
           fmt::format("s3://{}/{}: the cache has no room for {} names; raise CUBESHIM_RAM",
                       work.name.bucket, listing->directory, listing->names.count()));
  };
  client_.list(
      {.bucket = listing->work->name.bucket, .prefix = listing->directory, .token = listing->token},
      take);
}

}  // namespace cube::prefetch
