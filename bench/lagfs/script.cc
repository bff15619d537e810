#include "script.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>

#include "faults.h"

namespace cube::lagfs {
namespace {

constexpr auto k_nap = std::chrono::milliseconds(10);  // the pause between two checks for the
                                                       // client's end

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const auto begin = line.find_first_not_of(' ');
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    words.push_back(line.substr(0, line.find(' ')));
    line.remove_prefix(words.back().size());
  }
}

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

bool Script::write(std::string_view lines) {
  const std::lock_guard lock(mutex_);
  while (!lines.empty()) {
    const auto end = lines.find('\n');
    const auto line = lines.substr(0, end);
    if (!line.empty() && !obey(line)) return false;
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
  }
  return true;
}

void Script::let_go() {
  ++released_;
  expects_ = false;
  changed_.notify_all();
}

bool Script::obey(std::string_view line) {
  const auto words = words_of(line);
  if (words.empty()) return true;
  if (words[0] == "go" && words.size() == 1) {
    let_go();
    return true;
  }
  if (words[0] == "clear" && words.size() == 1) {
    rules_.clear();
    active_ = false;
    size_delta_ = seconds_delta_ = 0;
    next_inode_ = 0;
    let_go();
    return true;
  }
  if (words[0] == "lie" && words.size() == 2 && words[1] == "inode") {
    next_inode_ = 1ULL << 40;
    return true;
  }
  if (words[0] == "lie" && words.size() == 3 && (words[1] == "size" || words[1] == "times")) {
    const auto delta = number_in<std::int64_t>(words[2]);
    if (delta) (words[1] == "size" ? size_delta_ : seconds_delta_) = *delta;
    return delta.has_value();
  }
  const bool holds = words[0] == "hold";
  const std::size_t numbers = holds ? 2 : 3;  // the index of the first optional word
  if ((!holds && words[0] != "fail") || words.size() < numbers || words.size() > numbers + 2)
    return false;
  const auto op = find_op(words[1]);
  const auto error = holds ? 0 : find_errno(words[2]);
  const auto first = words.size() > numbers ? number_in<std::uint64_t>(words[numbers]) : 1;
  const auto count = words.size() > numbers + 1 ? number_in<std::uint64_t>(words[numbers + 1]) : 1;
  if (!op || !error || !first || *first == 0 || !count) return false;
  rules_.push_back({*op, *error, *first - 1, *count});
  expects_ = expects_ || holds;
  active_ = true;
  return true;
}

int Script::meet(Op op, const std::function<bool()>& gave_up) {
  if (!active_.load(std::memory_order_relaxed)) return 0;
  std::unique_lock lock(mutex_);
  bool hold = false;
  int error = 0;
  for (Rule& rule : rules_) {
    if (rule.op != op || rule.count == 0) continue;
    if (rule.skip > 0) {
      --rule.skip;
      continue;
    }
    --rule.count;
    hold = hold || rule.error == 0;
    if (error == 0) error = rule.error;
  }
  if (!hold) return error;
  ++held_;
  changed_.notify_all();
  const std::uint64_t before = released_;
  bool gone = false;
  while (released_ == before && !gone) {
    changed_.wait_for(lock, k_nap);
    gone = released_ == before && gave_up();
  }
  --held_;
  return gone ? EINTR : error;
}

void Script::lie(struct stat& st) {
  if (!S_ISREG(st.st_mode)) return;
  // Unsigned arithmetic, which wraps around, so that every size can be shown.
  st.st_size = static_cast<off_t>(static_cast<std::uint64_t>(st.st_size) +
                                  static_cast<std::uint64_t>(size_delta_.load()));
  st.st_mtim.tv_sec += seconds_delta_.load();
  st.st_ctim.tv_sec += seconds_delta_.load();
  if (next_inode_.load() != 0) st.st_ino = next_inode_.fetch_add(1);
}

unsigned Script::wait_for_held(const std::function<bool()>& gave_up) {
  std::unique_lock lock(mutex_);
  while (held_ == 0 && expects_ && !gave_up()) changed_.wait_for(lock, k_nap);
  return held_;
}

}  // namespace cube::lagfs
