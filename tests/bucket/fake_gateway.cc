// A gateway for tests: the buckets are directories of AWS_TEST_ROOT. It is started like the command
// (`fake_gateway gateway`), logs each request to AWS_TEST_LOG, and has the faults that
// AWS_TEST_FAULT names:
//   die       ends as it takes its first request; the next gateway works
//   die_copy  ends after its first answer to a copy
//   lost_copy has nothing for the first who collects a copy
//   silent    answers nothing
//   forget    does not answer its first request for an object
//   denied    answers EACCES
//   no_room   answers ENOSPC to each object and block
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cache/base/clock.h"
#include "cache/base/process/job_variable.h"
#include "cache/bucket/copy_socket.h"
#include "cache/bucket/copy_stat.h"
#include "cache/bucket/gateway_start.h"
#include "cache/file_cache.h"
#include "prefetch/object/listed_objects.h"

namespace cube::cache {
namespace {

std::string setting(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : "";
}

class FakeGateway {
 public:
  explicit FakeGateway(FileCache& cache)
      : cache_(cache), mailbox_(cache.region(), BucketMount::store()) {}

  int run() {
    if (mailbox_.become_gateway() != 0) return 0;
    auto listener = listen_for_copies(mailbox_.socket_path());
    if (!listener) return 1;
    std::thread([this, fd = listener->release()] { hand_over(fd); }).detach();
    for (int alone = 0; alone < 3;) {
      const std::uint32_t seen = mailbox_.news();
      while (auto request = mailbox_.take()) answer(*request);
      mailbox_.wait_for_news(seen, 100'000'000);
      cache_.region().reap();
      alone = cache_.region().count_processes() > 1 ? 0 : alone + 1;
    }
    unlink(mailbox_.socket_path().c_str());
    mailbox_.resign();
    cache_.detach();
    return 0;
  }

 private:
  // The fault happens only one time per test, whichever gateway has it.
  bool strikes(const char* fault) {
    if (fault_ != fault) return false;
    return fopen((log_ + ".struck").c_str(), "wx") != nullptr;
  }

  void answer(const Mailbox::Request& request) {
    static const char* const k_kinds[] = {"?", "GET", "LIST", "COPY", "BLOCKS", "CHECK"};
    note(std::string(k_kinds[static_cast<int>(request.kind) % 6]) + " " + request.below +
         (request.is_prefetch ? " (ahead)" : ""));
    if (strikes("die")) raise(SIGKILL);
    if (fault_ == "silent") return;
    if (request.kind == MailKind::object && strikes("forget")) return;
    if (fault_ == "denied") {
      mailbox_.finish(request.ticket, EACCES, request.url + ": the store says no");
      return;
    }
    const BucketMount mount(request.prefix, request.url);
    const std::string file = root_ + request.url.substr(4) + "/" + request.below;
    int error = EINVAL;
    std::string why;
    switch (request.kind) {
      case MailKind::object:
        error = fault_ == "no_room" ? ENOSPC : fetch(mount, request, file);
        break;
      case MailKind::listing: error = list(mount, request, file); break;
      case MailKind::copy: error = fault_ == "no_copies" ? EIO : copy(mount, request, file); break;
      case MailKind::check: error = check(request, file); break;
      case MailKind::blocks:
        error = fault_ == "no_room" ? ENOSPC : fetch_blocks(mount, request, file);
        if (error == EIO) why = request.url + "/" + request.below + ": the object has changed";
        break;
    }
    mailbox_.finish(request.ticket, error, why);
    if (request.kind == MailKind::copy && strikes("die_copy")) raise(SIGKILL);
  }

  void note(const std::string& line) {
    if (std::FILE* const log = fopen(log_.c_str(), "a"); log != nullptr) {
      std::fprintf(log, "%s\n", line.c_str());
      fclose(log);
    }
  }
  static ObjectInfo info_of(const struct ::stat& st) {
    return {static_cast<std::uint64_t>(st.st_size), st.st_mtim.tv_sec,
            mark_of_etag(std::to_string(st.st_mtim.tv_nsec) + "-" +
                         std::to_string(st.st_ctim.tv_nsec))};
  }
  static std::string bytes_of(const std::string& path, std::size_t size) {
    std::string bytes(size, '\0');
    if (std::FILE* const in = fopen(path.c_str(), "rb"); in != nullptr) {
      bytes.resize(fread(bytes.data(), 1, size, in));
      fclose(in);
    }
    return bytes;
  }
  int fetch(const BucketMount& mount, const Mailbox::Request& request, const std::string& path) {
    const std::string key = request.prefix + "/" + request.below;
    struct ::stat st {};
    if (stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return ENOENT;
    RecordFill fill(cache_.parts().ram, cache_.parts().rules, key, Lane::demand);
    const FileAtOrigin file{.stat = mount.stat_of_object(request.below, info_of(st)),
                            .is_physical = true,
                            .origin = mount.origin_id(),
                            .is_immutable = true};
    if (file.stat.size > cache_.parts().rules.max_file) return EFBIG;
    const auto next = fill.accept(file);
    if (next != RecordFill::Next::read) return next == RecordFill::Next::done ? 0 : ENOSPC;
    const std::string bytes = bytes_of(path, file.stat.size);
    if (bytes.size() != file.stat.size) return EIO;
    std::memcpy(fill.room(), bytes.data(), bytes.size());
    return fill.publish() ? 0 : ENOSPC;
  }
  static int check(const Mailbox::Request& request, const std::string& path) {
    struct ::stat st {};
    if (stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return ENOENT;
    const ObjectInfo now = info_of(st);
    return now.size == request.part.size && now.etag_mark == request.part.etag_mark ? 0 : ESTALE;
  }
  // Logs each range together with the number of bytes that it fetched.
  int fetch_blocks(const BucketMount& mount, const Mailbox::Request& request,
                   const std::string& path) {
    const MailPart& part = request.part;
    struct ::stat st {};
    const ObjectInfo listed{part.size, static_cast<std::int64_t>(part.modified),
                            static_cast<std::uint32_t>(part.etag_mark)};
    LargeFile* const file = cache_.large().begin_object(
        request.prefix + "/" + request.below, mount.stat_of_object(request.below, listed));
    if (file == nullptr) return ENOSPC;
    const std::unique_ptr<LargeFile, void (*)(LargeFile*)> end(file,
                                                               [](LargeFile* f) { f->end(); });
    const int in = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const base::UniqueFd held(in);
    int error = 0;
    for (std::uint64_t at = part.begin; at < part.ahead_end && error == 0;) {
      const std::uint64_t until =
          std::min(part.ahead_end, (at / k_chunk_bytes + 1) * k_chunk_bytes);
      LargeFile::Gap gap;
      const auto made = cache_.large().make_gap(*file, at, until, gap);
      if (made == LargeFile::Made::no_room) error = ENOSPC;
      if (made == LargeFile::Made::here) at = until;
      if (made != LargeFile::Made::gap) continue;
      if (stat(path.c_str(), &st) != 0 || info_of(st) != listed ||
          pread(in, gap.room(), gap.bytes, static_cast<off_t>(gap.at)) !=
              static_cast<ssize_t>(gap.bytes)) {
        error = EIO;
        break;
      }
      note("RANGE " + request.below + " " + std::to_string(gap.at) + " " +
           std::to_string(gap.bytes));
      cache_.large().fill_gap(*file, gap, gap.at >= part.end, cache_.stats());
      at = gap.at + gap.bytes;
    }
    // A waiting caller needs only the first part.
    return error != 0 && cache_.large().present_bytes(*file, {part.begin, part.end}) ==
                             part.end - part.begin
               ? 0
               : error;
  }
  int list(const BucketMount& mount, const Mailbox::Request& request, const std::string& path) {
    RamTier& ram = cache_.parts().ram;
    if (prefetch::ListedObjects::is_there(ram, mount, request.below, request.since_ns)) return 0;
    const std::uint64_t looked_ns = base::boot_ns();
    prefetch::ListedObjects listed;
    DIR* const directory = opendir(path.c_str());
    if (directory == nullptr && !request.below.empty()) return ENOENT;
    while (const dirent* const entry = directory != nullptr ? readdir(directory) : nullptr) {
      struct ::stat st {};
      if (fstatat(dirfd(directory), entry->d_name, &st, 0) != 0) continue;
      if (S_ISDIR(st.st_mode)) {
        listed.add_directory(entry->d_name);
      } else {
        listed.add_object(entry->d_name, info_of(st));
      }
    }
    if (directory != nullptr) closedir(directory);
    const auto published = listed.publish(cache_.metadata(), ram, mount, request.below, looked_ns);
    return published ? 0 : published.error().value;
  }
  int copy(const BucketMount& mount, const Mailbox::Request& request, const std::string& path) {
    struct ::stat st {};
    if (stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return ENOENT;
    if (request.part.end != 0 && request.part.etag_mark != info_of(st).etag_mark) return EIO;
    const std::string bytes = bytes_of(path, static_cast<std::size_t>(st.st_size));
    const FileStat object = mount.stat_of_object(request.below, info_of(st));
    base::UniqueFd file(static_cast<int>(
        base::sys::memfd_create(CopyName(object).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING)));
    if (!file ||
        write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      return EIO;
    seal_copy(file.get(), object);
    const std::lock_guard lock(mutex_);
    if (!strikes("lost_copy")) copies_[request.ticket.row] = std::move(file);
    return 0;
  }
  void hand_over(int listener) {
    while (true) {
      pollfd waiting{listener, POLLIN, 0};
      poll(&waiting, 1, -1);
      MailTicket ticket;
      const auto asker = accept_copy(listener, ticket);
      if (!asker) continue;
      const std::lock_guard lock(mutex_);
      const auto found = copies_.find(ticket.row);
      const bool is_there = found != copies_.end() && mailbox_.is_wanted(ticket);
      send_copy(asker->get(), is_there ? found->second.get() : -1);
    }
  }

  FileCache& cache_;
  Mailbox mailbox_;
  const std::string root_ = setting("AWS_TEST_ROOT"), log_ = setting("AWS_TEST_LOG"),
                    fault_ = setting("AWS_TEST_FAULT");
  std::mutex mutex_;
  std::map<std::uint32_t, base::UniqueFd> copies_;
};

int run() {
  using namespace cube;
  BucketMount::use_store(gateway_start::store_mark(environ));
  const base::Config config =
      base::parse_config([](const char* name) { return std::getenv(name); }).config;
  base::JobVariable job;
  const std::string known = setting(base::k_job_variable);
  if (!base::parse_job_variable(known, job)) job.first = base::current_process();
  std::string why;
  const auto cache = FileCache::attach(config, job.first, /*create=*/false, why);
  return cache ? FakeGateway(**cache).run() : 1;
}

}  // namespace
}  // namespace cube::cache

int main() { return cube::cache::run(); }
