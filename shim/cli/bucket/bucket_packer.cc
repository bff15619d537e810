#include "shim/cli/bucket/bucket_packer.h"

#include <dirent.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "cache/base/error_text.h"
#include "cache/base/hash.h"
#include "cache/base/path.h"
#include "cache/pack/pack_format.h"
#include "prefetch/object/s3/whole_object.h"
#include "shim/cli/bucket/session.h"

namespace cube::cli {
namespace {

using cache::PackSkip;
using End = cache::PackBuilder::End;

constexpr std::size_t k_most_of_batch = 256;
constexpr std::uint64_t k_bytes_of_batch = 64 << 20, k_large = 16 << 20;

// A slash sorts before all other bytes, so that the entries of a directory are adjacent.
bool is_before_in_pack(std::string_view a, std::string_view b) {
  const auto rank = [](char c) { return c == '/' ? 0 : int{static_cast<unsigned char>(c)}; };
  return std::ranges::lexicographical_compare(a, b, {}, rank, rank);
}

std::string_view parent_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return path.substr(0, slash == std::string_view::npos ? 0 : slash);
}

// Returns the bytes of an object in order. If the next bytes are missing, runs the client until
// they arrive.
class OrderedBytes final : public s3::ObjectSink {
 public:
  OrderedBytes(s3::Client& client, const cache::ObjectInfo& object)
      : client_(client), object_(object) {}

  int begin(const s3::Outcome& first) override {
    if (has_given_ || first.size != object_.size ||
        cache::mark_of_etag(first.etag) != object_.etag_mark)
      return ESTALE;
    ranges_.clear();
    return 0;
  }
  std::byte* room(std::uint64_t first, std::size_t bytes) override {
    return (ranges_[first].bytes = std::vector<std::byte>(bytes)).data();
  }
  int take(std::uint64_t first, std::size_t /*bytes*/) override {
    ranges_[first].has_come = true;
    return is_stopped_ ? ECANCELED : 0;
  }
  // Call this if no more bytes are needed.
  void stop() { is_stopped_ = true; }
  void end(const s3::Outcome& outcome) {
    is_over_ = true;
    error_ = outcome.error;
  }

  base::Result<std::size_t> read(std::byte* to, std::size_t n) {
    std::size_t got = 0;
    while (got < n) {
      const auto first = ranges_.begin();
      if (first == ranges_.end() || !first->second.has_come) {
        if (is_over_ && error_ != 0) return base::fail(error_);
        if (is_over_) break;
        client_.step(k_step_ms);
        continue;
      }
      has_given_ = true;
      const auto& bytes = first->second.bytes;
      const std::size_t part = std::min(n - got, bytes.size() - at_);
      std::memcpy(to + got, bytes.data() + at_, part);
      got += part;
      at_ += part;
      if (at_ != bytes.size()) continue;
      ranges_.erase(first);
      at_ = 0;
    }
    return got;
  }

 private:
  static constexpr int k_step_ms = 1000;
  struct Range {
    std::vector<std::byte> bytes;
    bool has_come = false;
  };
  s3::Client& client_;
  const cache::ObjectInfo object_;
  std::map<std::uint64_t, Range> ranges_;
  std::size_t at_ = 0;  // the position in the first range
  bool has_given_ = false, is_over_ = false, is_stopped_ = false;
  int error_ = 0;
};

}  // namespace

struct BucketPacker::Fetched {
  bool is_old = false, is_large = false, is_coming = false;
  int error = 0;
  std::vector<std::byte> data;
};

BucketPacker::BucketPacker(s3::Client& client, s3::ObjectName name, const cache::PackBuild& build)
    : client_(client),
      name_(std::move(name)),
      directory_(name_.key.empty() ? "" : name_.key + "/"),
      build_(build),
      mount_("", build.root) {}

bool BucketPacker::check(const base::Result<void>& written) {
  if (!written)
    why_ = fmt::format("cannot write {}: {}", writer_->partial(),
                       base::text_of_error(written.error().value));
  return static_cast<bool>(written);
}

void BucketPacker::add_page(s3::ListPage& page) {
  for (auto& object : page.objects) {
    std::string path = object.key.substr(directory_.size());
    const bool is_directory = path.ends_with('/');
    if (is_directory) path.pop_back();
    if (path.empty() && !is_directory) continue;  // the marker of the root directory
    if (!cache::is_pack_path(path) || path.empty()) {
      build_.skipped(PackSkip::no_path, object.key, 0);
      continue;
    }
    rows_.push_back({std::move(path),
                     {object.size, object.modified, cache::mark_of_etag(object.etag)},
                     is_directory});
  }
}

// Sorts the rows in the order of a pack. A directory hides an object of the same name.
void BucketPacker::sort() {
  std::ranges::sort(rows_, [](const Row& a, const Row& b) {
    return a.path == b.path ? a.is_directory < b.is_directory : is_before_in_pack(a.path, b.path);
  });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const bool is_hidden = !rows_[i].is_directory && i + 1 < rows_.size() &&
                           base::is_at_or_below(rows_[i + 1].path, rows_[i].path);
    if (is_hidden) {
      build_.skipped(PackSkip::no_path, key_of(rows_[i]), 0);
    } else if (kept != i) {
      rows_[kept++] = std::move(rows_[i]);
    } else {
      ++kept;
    }
  }
  rows_.resize(kept);
}

bool BucketPacker::list(std::string& why) {
  s3::Outcome outcome;
  std::size_t found = 0;
  const bool is_listed = list_pages(
      client_, {.bucket = name_.bucket, .prefix = directory_, .delimiter = ""},
      [&](s3::ListPage& page) {
        found += page.objects.size();
        add_page(page);
        return build_.go_on({});
      },
      outcome);
  if (!is_listed) why = outcome.trouble;
  if (is_listed && found == 0) why = build_.root + ": no object lies below it";
  sort();
  return why.empty();
}

End BucketPacker::run(std::string& why) {
  if (!list(why)) return End::failed;
  auto writer = cache::PackWriter::open({.file = build_.file,
                                         .arguments_hash = base::hash_path(build_.root),
                                         .scratch = build_.scratch});
  if (!writer) {
    why = fmt::format("cannot write {}.partial: {}", build_.file,
                      base::text_of_error(writer.error().value));
    return End::failed;
  }
  writer_ = std::move(*writer);
  levels_.emplace_back();
  bool is_well = true;
  // For a new pack, the next batch is requested before the wait for this batch, so that the store
  // always has requests. For a resumed pack this is impossible: only the writing shows which rows
  // the pack already has.
  const bool is_new = writer_->old() == nullptr;
  Batch batch = begin_batch(0);
  while (is_well && batch.first < rows_.size()) {
    // After an interrupt, the requested batch is still written.
    const bool goes_on = build_.go_on(writer_->header());
    std::optional<Batch> next;
    if (goes_on && is_new) next = begin_batch(batch.end);
    is_well = take_batch(batch);
    if (is_well && !goes_on) {
      is_well = check(writer_->pause());
      if (is_well) return End::stopped;
      break;
    }
    batch = next ? std::move(*next) : begin_batch(batch.end);
  }
  while (is_well && !levels_.empty()) is_well = leave();
  if (is_well && check(writer_->finish())) return End::done;
  why = why_;
  return End::failed;
}

std::size_t BucketPacker::end_of_batch(std::size_t first) const {
  std::size_t end = first;
  for (std::uint64_t bytes = 0; end < rows_.size() && end - first < k_most_of_batch; ++end) {
    bytes += rows_[end].object.size > k_large ? 0 : rows_[end].object.size;
    if (bytes > k_bytes_of_batch && end != first) break;
  }
  return end;
}

BucketPacker::Batch BucketPacker::begin_batch(std::size_t first) {
  Batch batch{first, end_of_batch(first), {}};
  batch.fetched.resize(batch.end - first);
  std::size_t ahead = 0;
  for (std::size_t i = first; i < batch.end; ++i) {
    const Row& row = rows_[i];
    Fetched& one = batch.fetched[i - first];
    if (row.is_directory) continue;
    const auto is_of_directory = [](const cache::OldRecord* old) {
      return old != nullptr && old->entry.kind == cache::RecordKind::directory;
    };
    while (is_of_directory(writer_->old(ahead))) ++ahead;
    one.is_old = is_same(writer_->old(ahead), row);
    if (one.is_old) {
      ++ahead;
    } else {
      fetch(row, one);
    }
  }
  return batch;
}

bool BucketPacker::take_batch(Batch& batch) {
  constexpr int k_step_ms = 1000;
  while (std::ranges::any_of(batch.fetched, &Fetched::is_coming)) client_.step(k_step_ms);
  for (std::size_t i = batch.first; i < batch.end; ++i) {
    const Row& row = rows_[i];
    if (!go_to(row.is_directory ? std::string_view(row.path) : parent_of(row.path))) return false;
    if (!row.is_directory && !take(row, batch.fetched[i - batch.first])) return false;
  }
  return true;
}

void BucketPacker::fetch(const Row& row, Fetched& fetched) {
  fetched.is_large = row.object.size > k_large;
  if (fetched.is_large) return;
  fetched.data.resize(row.object.size);
  fetched.is_coming = true;
  client_.get({.bucket = name_.bucket,
               .key = key_of(row),
               .begin =
                   [&](const s3::Outcome& head, s3::Transfer::Room& room) {
                     if (head.is_size_known && head.size != row.object.size) return ESTALE;
                     if (head.is_size_known) room = {fetched.data.data(), fetched.data.size()};
                     return 0;
                   }},
              [&](s3::Outcome& outcome) {
                fetched.is_coming = false;
                fetched.error = outcome.error;
                if (outcome.error != 0) return;
                const bool is_whole = outcome.bytes == row.object.size &&
                                      cache::mark_of_etag(outcome.etag) == row.object.etag_mark;
                if (!is_whole) fetched.error = ESTALE;
                if (is_whole && !outcome.http.body.empty())
                  std::memcpy(fetched.data.data(), outcome.http.body.data(), outcome.bytes);
              });
}

cache::FileStat BucketPacker::stat_of(const Row& row) const {
  return cache::packed_stat(mount_.stat_of_object(row.path, row.object), 0);
}

bool BucketPacker::is_same(const cache::OldRecord* old, const Row& row) const {
  const cache::FileStat stat = stat_of(row);
  return old != nullptr && old->path == row.path && old->entry.kind == cache::RecordKind::file &&
         std::memcmp(&old->entry.stat, &stat, sizeof stat) == 0;
}

bool BucketPacker::take(const Row& row, Fetched& fetched) {
  Level& level = levels_.back();
  const cache::FileStat stat = stat_of(row);
  if (fetched.is_old) {
    const auto adopted =
        is_same(writer_->old(), row) ? writer_->adopt() : base::Result<bool>(false);
    if (!adopted) return check(base::fail(adopted.error().value));
    fetched.is_old = *adopted;
    resumed_ += *adopted ? 1 : 0;
    if (!*adopted) {
      fetch(row, fetched);
      client_.run_until_idle();
    }
  }
  base::Result<void> added;
  if (fetched.is_large) {
    added = add_large(row);
    if (!added && !writer_->has_failed_in_source()) return check(added);
    if (!added) fetched.error = added.error().value;
  } else if (!fetched.is_old && fetched.error == 0) {
    added = writer_->add({.path = row.path, .kind = cache::RecordKind::file, .stat = stat},
                         fetched.data);
    if (!added) return check(added);
  }
  const bool is_changed = fetched.error == ESTALE || fetched.error == ENOENT;
  if (fetched.error != 0) {
    level.is_whole = false;
    build_.skipped(is_changed ? PackSkip::changing : PackSkip::unreadable, row.path,
                   is_changed ? 0 : fetched.error);
    return true;
  }
  level.names.add(std::string_view(row.path).substr(row.path.rfind('/') + 1), stat.inode, DT_REG);
  level.names[level.names.size() - 1].is_packed = true;
  return true;
}

base::Result<void> BucketPacker::add_large(const Row& row) {
  const auto bytes = std::make_shared<OrderedBytes>(client_, row.object);
  s3::get_whole(client_, name_.bucket, key_of(row), bytes, {},
                [bytes](s3::Outcome& outcome) { bytes->end(outcome); });
  auto added =
      writer_->add_streamed({.path = row.path, .stat = stat_of(row)}, row.object.size,
                            [&](std::byte* to, std::size_t n) { return bytes->read(to, n); });
  bytes->stop();
  client_.run_until_idle();
  return added;
}

// Leaves and enters directories until the current directory is `directory`.
bool BucketPacker::go_to(std::string_view directory) {
  const auto is_above = [&](const std::string& path) {
    return path.empty() || base::is_at_or_below(directory, path);
  };
  while (!is_above(levels_.back().path)) {
    if (!leave()) return false;
  }
  while (levels_.back().path.size() != directory.size()) {
    Level& above = levels_.back();
    const std::size_t from = above.path.empty() ? 0 : above.path.size() + 1;
    const std::size_t slash = std::min(directory.find('/', from), directory.size());
    const std::string path(directory.substr(0, slash));
    above.names.add(directory.substr(from, slash - from), mount_.stat_of_directory(path).inode,
                    DT_DIR);
    above.names[above.names.size() - 1].is_packed = true;
    levels_.push_back({.path = path, .names = {}, .done = {}});
  }
  return true;
}

bool BucketPacker::leave() {
  Level level = std::move(levels_.back());
  levels_.pop_back();
  for (const auto& record : level.done) {
    if (!write(record)) return false;
  }
  DirectoryRecord record{std::move(level.path), level.names.listing(level.is_whole)};
  if (levels_.empty()) return write(record);
  levels_.back().done.push_back(std::move(record));
  return true;
}

bool BucketPacker::write(const DirectoryRecord& record) {
  return check(writer_->add(
      {.path = record.path,
       .kind = cache::RecordKind::directory,
       .stat = cache::packed_stat(mount_.stat_of_directory(record.path), 0)},
      {reinterpret_cast<const std::byte*>(record.listing.data()), record.listing.size()}));
}

}  // namespace cube::cli
