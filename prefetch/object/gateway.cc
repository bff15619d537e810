#include "prefetch/object/gateway.h"

#include <fmt/core.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/log.h"
#include "cache/metadata/listed_objects.h"
#include "prefetch/object/copy_file.h"
#include "prefetch/object/object_fill.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_second_ns = 1'000'000'000;
constexpr int k_look_ms = 1000;

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
  // Up to a second late: nobody waits for the end.
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

}  // namespace

// A transfer or a listing, for which several askers may wait.
struct Gateway::Work {
  Request request;  // of the first asker
  s3::ObjectName name;
  cache::BucketMount mount;
  std::string id;
  std::vector<cache::MailTicket> askers;
  std::uint64_t told_ns = base::monotonic_ns();  // when the askers heard of progress
};

struct Gateway::ListingWork {
  WorkPointer work;
  std::string directory;  // the prefix of all keys in it
  cache::ListedObjects names;
  std::uint64_t looked_ns = 0;
  bool has_any = false;
  std::string token = {};
};

void Gateway::run(const std::function<bool()>& is_to_end) {
  const NewsWatch watch(mailbox_, client_);
  for (;;) {
    take_requests();
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
  if (cache_.region().count_processes() > 1 || !works_.empty()) {
    alone_since_ns_ = 0;
  } else if (alone_since_ns_ == 0) {
    alone_since_ns_ = now;
  }
  return alone_since_ns_ == 0 || now - alone_since_ns_ < options_.linger_ns;
}

void Gateway::take_requests() {
  while (auto request = mailbox_.take()) {
    const auto name = s3::parse_s3_uri(request->url);
    if (!name) {
      mailbox_.finish(request->ticket, EINVAL, request->url + ": not the name of a bucket");
      continue;
    }
    std::string id = fmt::format("{}\n{}\n{}\n{}", static_cast<int>(request->kind), request->url,
                                 request->prefix, request->below);
    if (const auto found = works_.find(id); found != works_.end()) {
      found->second->askers.push_back(request->ticket);
      continue;
    }
    cache::BucketMount mount(request->prefix, request->url);
    auto work = std::make_shared<Work>(
        Work{*request, *name, std::move(mount), std::move(id), {request->ticket}});
    std::string& key = work->name.key;
    while (key.ends_with('/')) key.pop_back();
    if (!request->below.empty()) key += (key.empty() ? "" : "/") + request->below;
    works_[work->id] = work;
    start(work);
  }
}

void Gateway::start(const WorkPointer& work) {
  switch (work->request.kind) {
    case cache::MailKind::object: return fetch_object(work);
    case cache::MailKind::listing: return fetch_listing(work);
    case cache::MailKind::copy: return fetch_copy(work);
  }
  finish(work, EINVAL, "");
}

// Askers wait much longer, and each of them wakes up.
void Gateway::tell_progress(Work& work) const {
  const std::uint64_t now = base::monotonic_ns();
  if (now - work.told_ns < k_second_ns) return;
  work.told_ns = now;
  for (const auto& ticket : work.askers) mailbox_.tell_progress(ticket);
}

void Gateway::finish(const WorkPointer& work, int error, const std::string& trouble) {
  std::string why = trouble;
  if (error == EACCES && !options_.who.empty())
    why += fmt::format(" (credentials from {})", options_.who);
  for (const auto& ticket : work->askers) mailbox_.finish(ticket, error, why);
  works_.erase(work->id);
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
  client_.get({.bucket = work->name.bucket,
               .key = work->name.key,
               .begin =
                   [this, work, fill](const s3::Outcome& head, s3::Transfer::Room& room) {
                     tell_progress(*work);
                     return head.is_size_known ? fill->begin(head, room) : 0;
                   },
               .is_urgent = !work->request.is_prefetch},
              [this, work, fill](s3::Outcome& outcome) {
                finish(work, fill->end(outcome), outcome.trouble);
              });
}

void Gateway::fetch_copy(const WorkPointer& work) {
  const auto file =
      std::make_shared<CopyFile>(options_.disk_dir, [this, work] { tell_progress(*work); });
  s3::get_whole(client_, work->name.bucket, work->name.key, file, {},
                [this, work, file](s3::Outcome& outcome) {
                  if (outcome.error == 0) {
                    const auto& head = file->head();
                    const auto made = std::make_shared<const base::UniqueFd>(file->finish());
                    cache::seal_copy(made->get(),
                                     work->mount.stat_of_object(work->request.below,
                                                                {head.size, head.modified,
                                                                 cache::mark_of_etag(head.etag)}));
                    for (const auto& ticket : work->askers) desk_.add(ticket, made);
                  }
                  finish(work, outcome.error, outcome.trouble);
                });
}

void Gateway::fetch_listing(const WorkPointer& work) {
  const auto& request = work->request;
  if (cache::ListedObjects::is_there(cache_.parts().ram, work->mount, request.below,
                                     request.since_ns))
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
