// FileCache: a file that the disk has is opened with one question to the origin, its stat. An immutable origin is asked nothing.
#include <cerrno>
#include <cstring>

#include "cache/file_cache.h"

namespace cube::cache {
namespace {

using base::Counter;

// Would the origin let this process read it? A process of this user has read it, with the mode, owner, group and ctime that it
// has now, so no ACL has changed since. But the user's groups may have, and those with capabilities read what others cannot: in
// RAM the views (base/view.h) tell these apart, here only what the owner may read, or everybody, is served without an open.
bool may_be_read(const FileStat& stat) {
  constexpr std::uint32_t k_all_others = S_IRGRP | S_IROTH;
  const auto user = static_cast<std::uint32_t>(base::sys::raw(SYS_geteuid));
  return stat.user == user ? (stat.mode & S_IRUSR) != 0 : (stat.mode & k_all_others) == k_all_others;
}

}  // namespace

bool FileCache::open_from_disk(const OpenRequest& request, Lane lane, OpenOutcome& outcome) {
  if (disk_ == nullptr) return false;
  // Before the look at the origin, as in any fetch.
  Fetch fetch(ram_, rules_, request.key, lane);
  bool has_asked = false;
  base::Result<FileStat> stat = base::fail(ENOENT);
  bool is_physical = false;
  using Verdict = DiskTier::Verdict;
  const Origin& origin = origin_of(request.key);
  const bool is_immutable = origin.traits().is_immutable;
  // The record says which origin it is of: nobody need be asked.
  const auto judge_immutable = [&](const Record& record) {
    if (record.origin == k_mounts) return Verdict::refused;
    if (record.origin != origin.id() || record.data_size != record.stat.size) return Verdict::outdated;
    stat = record.stat;
    is_physical = record.is_physical();
    return Verdict::taken;
  };
  const auto judge_mutable = [&](const Record& record) {
    if (!has_asked) {
      has_asked = true;
      is_physical = record.is_physical();
      stats().count(Counter::origin_stats);
      // A path that was no link must not have become one, because lstat is answered from the record.
      stat = stat_path(AT_FDCWD, request.path, is_physical ? AT_SYMLINK_NOFOLLOW : 0);
    }
    if (!stat || record.is_physical() != is_physical) return Verdict::refused;
    const Verdict verdict = DiskTier::compare(record, *stat);
    return verdict == Verdict::taken && !may_be_read(*stat) ? Verdict::refused : verdict;
  };
  const bool is_taken = disk_->visit(request.key, [&](const Record& record) {
    const Verdict verdict = is_immutable ? judge_immutable(record) : judge_mutable(record);
    if (verdict != Verdict::taken) return verdict;
    switch (fetch.accept({*stat, is_physical, origin.id(), is_immutable})) {
      case Fetch::Next::refuse: return Verdict::refused;
      case Fetch::Next::done: stats().count(Counter::hits_ram); return Verdict::taken;
      case Fetch::Next::read: break;
    }
    fetch.note_from_disk(record.data_hash);
    std::memcpy(fetch.room(), record.data(), record.data_size);
    if (!fetch.publish()) return Verdict::refused;
    stats().count(Counter::hits_disk);
    return Verdict::taken;
  });
  if (is_taken) {
    outcome.pin = std::move(fetch.pin());
    if (outcome.pin->is_prefetched()) note_opened(*outcome.pin, /*waited_for_prefetch=*/false);
    return true;
  }
  // The program has taken a signal that was to end its waiting: an open would begin to wait anew.
  if (!has_asked || stat || stat.error().value != EINTR) return false;
  stats().count(Counter::bypassed_error);
  outcome.error = EINTR;
  return true;
}

}  // namespace cube::cache
