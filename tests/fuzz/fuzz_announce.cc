// Arbitrary messages from several clients. Every field must be checked, memory must be bounded, and
// exactly the announced paths must be handed on, in order. Input: for each step, a byte that
// chooses the client and the action; for a message, also two bytes of length and the message. If
// bit 7 is set, the type and the numbers are made valid, so that more than the first message is
// accepted.
#include <algorithm>
#include <climits>
#include <cstring>
#include <map>
#include <vector>

#include "prefetch/order/announced/announced_orders.h"
#include "tests/fuzz/fuzz.h"

namespace cube::prefetch {
namespace {

constexpr std::size_t k_slots = 3;

template <typename T>
std::string with_head(T head, std::string_view rest) {
  return std::string(reinterpret_cast<const char*>(&head), sizeof head).append(rest);
}

struct Run {
  AnnouncedOrders orders{{"/data", "/more/a"}};
  std::map<std::uint32_t, std::uint64_t> given;  // for each reader, the next sequence number
  std::uint64_t epoch[k_slots] = {}, sequence[k_slots] = {};

  // Makes a message, possibly a valid one, from the bytes of the input.
  std::string message(std::size_t slot, unsigned kind, std::string_view text) {
    switch (kind % 5) {
      case 0: return with_head(HelloMessage{}, "");
      case 1: {
        BeginMessage begin;
        begin.epoch = ++epoch[slot];
        sequence[slot] = 0;
        return with_head(begin, "/" + std::string(text));
      }
      case 2: {
        PathsMessage paths;
        paths.epoch = epoch[slot];
        paths.first = sequence[slot];
        std::string names(text);
        names.push_back('\0');
        paths.count = static_cast<std::uint32_t>(std::count(names.begin(), names.end(), '\0'));
        sequence[slot] += paths.count;
        return with_head(paths, names);
      }
      case 3: {
        EndMessage end;
        end.epoch = epoch[slot];
        end.flags = static_cast<std::uint32_t>(text.size()) & 1U;
        return with_head(end, "");
      }
      default: return with_head(ByeMessage{}, "");
    }
  }

  void say(std::size_t slot, std::string_view bytes) {
    ClientMessage parsed;
    const char* const wrong = read_message(bytes, parsed);
    if (wrong == nullptr) {
      FUZZ_CHECK(parsed.text.size() <= bytes.size(), "text beyond the message");
      FUZZ_CHECK(parsed.type != MessageType::paths || parsed.count > 0, "no path");
    }
    const auto before = orders.state(slot);
    if (before.is_full) return;
    const char* const refused = orders.take(slot, bytes);
    FUZZ_CHECK(wrong == nullptr || refused != nullptr, "%s", wrong);
    FUZZ_CHECK(refused != nullptr || before.said_hello || parsed.type == MessageType::hello,
               "no hello");
    if (refused == nullptr) return;
    const auto after = orders.state(slot);
    FUZZ_CHECK(after.has_paths == before.has_paths && after.news.sequence == before.news.sequence,
               "changed: %s", refused);
    drop(slot);
  }

  void drop(std::size_t slot) {
    orders.remove(slot);
    epoch[slot] = sequence[slot] = 0;
    orders.add(slot);
  }

  void take() {
    PlannedFile file;
    if (!orders.next(file)) {
      for (const auto& line : orders.take_refusals())
        FUZZ_CHECK(line.size() < 1000, "%zu bytes", line.size());
      return;
    }
    FUZZ_CHECK(file.path.starts_with("/data/") || file.path == "/data" ||
                   (file.path + "/").starts_with("/more/a/"),
               "%s", file.path.c_str());
    FUZZ_CHECK(file.path.size() < PATH_MAX && file.path.find('\0') == std::string::npos,
               "a path of %zu bytes", file.path.size());
    FUZZ_CHECK((file.path + "/").find("/../") == std::string::npos &&
                   file.path.find("//") == std::string::npos,
               "%s", file.path.c_str());
    FUZZ_CHECK(file.reader != 0, "reader 0");
    const auto at = given.emplace(file.reader, file.sequence).first;
    FUZZ_CHECK(at->second == file.sequence, "%llu", static_cast<unsigned long long>(file.sequence));
    ++at->second;
  }

  void play(fuzz::Input input) {
    for (std::size_t slot = 0; slot < k_slots; ++slot) orders.add(slot);
    while (input.left() != 0) {
      const unsigned what = input.byte();
      const std::size_t slot = what % k_slots;
      const unsigned kind = (what & 0x7f) / k_slots;
      if (kind >= 40) {
        take();
      } else if (kind == 39) {
        orders.settled(static_cast<std::uint32_t>(64 + slot), input.byte());
      } else if (kind == 38) {
        drop(slot);
      } else {
        const std::string_view text = input.text(input.number<std::uint16_t>() % 2000);
        // The slot of a client that said goodbye is not reused until all its paths are handed on.
        if (orders.add(slot) || orders.state(slot).said_hello || !orders.state(slot).has_paths) {
          say(slot, (what & 0x80) != 0 ? message(slot, kind, text) : std::string(text));
        }
      }
    }
    PlannedFile file;
    while (orders.next(file)) {
    }
    for (std::size_t slot = 0; slot < k_slots; ++slot)
      FUZZ_CHECK(!orders.state(slot).has_paths, "left over");
  }
};

}  // namespace
}  // namespace cube::prefetch

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cube::prefetch::Run().play({data, size});
  return 0;
}
