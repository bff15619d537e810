#include "bench/prefetch/contenders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

namespace cube::bench {
namespace {

class PlainReader final : public Contender {
 public:
  explicit PlainReader(unsigned threads) : buffers_(threads, std::vector<char>(1 << 20)) {}

  std::uint64_t read_all(const Paths& paths) override {
    std::atomic<std::size_t> next{0};
    std::atomic<std::uint64_t> bytes{0};
    std::vector<std::thread> threads;
    for (auto& buffer : buffers_) {
      threads.emplace_back([&] {
        for (std::size_t at = 0; (at = next.fetch_add(1)) < paths.size();)
          bytes += read_one(paths[at].c_str(), buffer);
      });
    }
    for (auto& thread : threads) thread.join();
    return bytes;
  }

 private:
  static std::uint64_t read_one(const char* path, std::vector<char>& buffer) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    struct stat st {};
    fstat(fd, &st);
    const auto size = static_cast<std::size_t>(st.st_size);
    if (buffer.size() < size + 1) buffer.resize(size + 1);
    const ssize_t n = read(fd, buffer.data(), size + 1);
    close(fd);
    return n > 0 ? static_cast<std::uint64_t>(n) : 0;
  }
  // The buffers are reused in each pass, like those of an engine's client.
  std::vector<std::vector<char>> buffers_;
};

class EngineReader final : public Contender, public prefetch::FetchClient {
 public:
  explicit EngineReader(std::size_t largest) : largest_(largest) {}
  bool start(base::EngineKind choice, unsigned depth, int nice) {
    std::string why;
    prefetch::EngineOptions options;
    options.depth = depth;
    options.nice = nice;
    options.idle_ms = 60'000;
    engine_ = prefetch::make_engine(choice, options, *this, why);
    return engine_ != nullptr;
  }
  ~EngineReader() override {
    engine_.reset();
    for (auto& place : kept_) delete[] place.load();
  }

  std::uint64_t read_all(const Paths& paths) override {
    bytes_ = 0;
    std::vector<Item> items(paths.size());
    for (std::size_t i = 0; i < paths.size(); ++i) {
      items[i].path = paths[i].c_str();
      engine_->submit(items[i]);
    }
    engine_->drain();
    return bytes_;
  }

  std::string choice() const override { return engine_->name_for(0); }

  prefetch::Room room_for(prefetch::Fetch& fetch, const cache::FileAtOrigin& file) override {
    if (!file.stat.is_regular() || file.stat.size > largest_) return prefetch::Room::decline(1);
    auto& item = static_cast<Item&>(fetch);
    for (auto& place : kept_) {
      if ((item.room = place.exchange(nullptr)) != nullptr) break;
    }
    if (item.room == nullptr) item.room = new std::byte[largest_];
    return prefetch::Room::give(item.room, false);
  }
  void ended(prefetch::Fetch& fetch, const prefetch::FetchResult& result) override {
    auto& item = static_cast<Item&>(fetch);
    if (result.ending == prefetch::Ending::whole) bytes_ += result.bytes;
    if (item.room == nullptr) return;
    for (auto& place : kept_) {
      if (std::byte* nothing = nullptr;
          place.load() == nullptr && place.compare_exchange_strong(nothing, item.room))
        return;
    }
    delete[] item.room;
  }

 private:
  struct Item : prefetch::Fetch {
    std::byte* room = nullptr;
  };
  const std::size_t largest_;
  std::unique_ptr<prefetch::IoEngine> engine_;
  // Free buffers. They need no lock, because the plain reader has none either.
  std::array<std::atomic<std::byte*>, prefetch::k_most_depth> kept_{};
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace

std::unique_ptr<Contender> plain_reader(unsigned threads) {
  return std::make_unique<PlainReader>(threads);
}

std::unique_ptr<Contender> engine_reader(base::EngineKind choice, unsigned depth, int nice,
                                         std::size_t largest) {
  auto reader = std::make_unique<EngineReader>(largest);
  if (!reader->start(choice, depth, nice)) return nullptr;
  return reader;
}

}  // namespace cube::bench
