// Checks files against a model in memory, and not only against the kernel. Some files have readers,
// and one writer at a time (this process or the peer). Each operation reports whether it saw the
// model's content.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/differential/actor.h"
#include "tests/differential/player.h"

namespace cube::differ {
namespace {

using Bytes = std::shared_ptr<std::string>;

struct Open {
  int fd = -1;
  Bytes bytes;  // of the opened file, even if another file has its name now
  std::shared_ptr<std::int64_t> at;
};

struct Model {
  static constexpr std::int64_t k_files[] = {0, 5, 8, 9, 11};  // by their place in entries()
  std::string place;
  Bytes files[std::size(k_files)];
  Open opens[4];

  Bytes& file(std::int64_t n) { return files[static_cast<std::size_t>(n) % std::size(files)]; }
  Open& open(std::int64_t n) { return opens[static_cast<std::size_t>(n) % std::size(opens)]; }
  std::string path(Player& p, std::int64_t n) {
    return p.path(k_files[static_cast<std::size_t>(n) % std::size(k_files)], 0);
  }
};

// Returns the model of the current sequence. Each sequence has its own tree.
Model& model_of(Player& p) {
  static Model model;
  if (model.place == p.tree().outside) return model;
  model = Model();
  model.place = p.tree().outside;
  for (std::size_t i = 0; i < std::size(model.files); ++i) {
    const Entry& entry = Player::entry(Model::k_files[i]);
    model.files[i] = std::make_shared<std::string>(content_of(entry.name, entry.size));
  }
  return model;
}

std::string_view part(const std::string& bytes, std::int64_t at, std::int64_t n) {
  if (at < 0 || at >= static_cast<std::int64_t>(bytes.size())) return {};
  return std::string_view(bytes).substr(static_cast<std::size_t>(at), static_cast<std::size_t>(n));
}

void check(Player& p, const char* what, std::int64_t at, std::string_view expected, long got,
           const char* data) {
  if (got == static_cast<long>(expected.size()) &&
      std::memcmp(expected.data(), data, expected.size()) == 0)
    return p.say("{} at {}: {} bytes, right", what, at, got);
  std::size_t same = 0;
  while (got > 0 && same < expected.size() && same < static_cast<std::size_t>(got) &&
         data[same] == expected[same])
    ++same;
  p.say("{} at {}: {} bytes for {}, {} of them right: model: wrong", what, at, got, expected.size(),
        same);
}

void put(std::string& bytes, std::int64_t at, const std::string& data) {
  const auto end = static_cast<std::size_t>(at) + data.size();
  if (!data.empty() && bytes.size() < end) bytes.resize(end);
  std::copy(data.begin(), data.end(), bytes.begin() + (data.empty() ? 0 : at));
}

}  // namespace

DIFFER_PLAY(model_open) {
  Model& model = model_of(p);
  Open& open = model.open(a[0]);
  if (open.fd >= 0 && open.at.use_count() >= 1) close(open.fd);
  open = {::open(model.path(p, a[1]).c_str(), O_RDONLY | O_CLOEXEC), model.file(a[1]),
          std::make_shared<std::int64_t>(0)};
  p.say("model: {} is file {} as {}{}", a[0], a[1], open.fd, open.fd < 0 ? ": model: wrong" : "");
}

DIFFER_PLAY(model_dup) {
  Model& model = model_of(p);
  const Open from = model.open(a[0]);
  Open& to = model.open(a[1]);
  if (from.fd < 0 || &to == &model.open(a[0])) return;
  if (to.fd >= 0) close(to.fd);
  to = {dup(from.fd), from.bytes, from.at};
  p.say("model: {} is a dup of {} as {}", a[1], a[0], to.fd);
}

DIFFER_PLAY(model_read) {
  Open& open = model_of(p).open(a[0]);
  if (open.fd < 0) return;
  std::string to(static_cast<std::size_t>(a[1]), '\0');
  const std::int64_t at = *open.at;
  const std::string_view expected = part(*open.bytes, at, a[1]);
  const long got = read(open.fd, to.data(), to.size());
  check(p, "model read", at, expected, got, to.data());
  *open.at += static_cast<std::int64_t>(expected.size());
}

DIFFER_PLAY(model_pread) {
  const Open& open = model_of(p).open(a[0]);
  if (open.fd < 0) return;
  const std::int64_t at = std::max<std::int64_t>(a[2], 0);
  std::string to(static_cast<std::size_t>(a[1]), '\0');
  const long got = pread(open.fd, to.data(), to.size(), at);
  check(p, "model pread", at, part(*open.bytes, at, a[1]), got, to.data());
}

DIFFER_PLAY(model_seek) {
  Open& open = model_of(p).open(a[0]);
  if (open.fd < 0) return;
  const int whence = static_cast<int>(a[2] % 3);
  const auto size = static_cast<std::int64_t>(open.bytes->size());
  std::int64_t expected = a[1] + (whence == SEEK_CUR ? *open.at : whence == SEEK_END ? size : 0);
  if (expected < 0) expected = -1;
  const std::int64_t got = lseek(open.fd, a[1], whence);
  if (expected >= 0) *open.at = expected;
  p.say("model seek {} {} = {}{}", a[1], whence, got, got != expected ? ": model: wrong" : "");
}

DIFFER_PLAY(model_stat) {
  const Open& open = model_of(p).open(a[0]);
  if (open.fd < 0) return;
  struct ::stat st {};
  const bool right =
      fstat(open.fd, &st) == 0 && st.st_size == static_cast<std::int64_t>(open.bytes->size());
  p.say("model size {}: {}", st.st_size, right ? "right" : "model: wrong");
}

// Reads the mapping at once, because its contents are not defined after its file changes
// (SEMANTICS, Limits).
DIFFER_PLAY(model_map) {
  const Open& open = model_of(p).open(a[0]);
  if (open.fd < 0 || open.bytes->empty()) return;
  const auto size = static_cast<std::int64_t>(open.bytes->size());
  const std::int64_t at = std::max<std::int64_t>(a[1], 0) % size / 4096 * 4096;
  const std::int64_t n = std::clamp<std::int64_t>(a[2], 1, size - at);
  void* const map = mmap(nullptr, static_cast<std::size_t>(n), PROT_READ,
                         a[3] % 2 == 0 ? MAP_PRIVATE : MAP_SHARED, open.fd, at);
  if (map == MAP_FAILED) return p.say("model map at {}: {}: model: wrong", at, error_name(errno));
  check(p, "model map", at, part(*open.bytes, at, n), n, static_cast<const char*>(map));
  munmap(map, static_cast<std::size_t>(n));
}

DIFFER_PLAY(model_stream) {
  Model& model = model_of(p);
  FILE* const stream = fopen(model.path(p, a[0]).c_str(), "r");
  if (stream == nullptr) return p.say("model stream: {}: model: wrong", error_name(errno));
  const std::int64_t at = std::max<std::int64_t>(a[1], 0);
  std::string to(static_cast<std::size_t>(a[2]), '\0');
  fseek(stream, at, SEEK_SET);
  const auto got = static_cast<long>(fread(to.data(), 1, to.size(), stream));
  check(p, "model stream", at, part(*model.file(a[0]), at, a[2]), got, to.data());
  fclose(stream);
}

DIFFER_PLAY(model_write) {
  Model& model = model_of(p);
  Bytes& file = model.file(a[0]);
  const std::string path = model.path(p, a[0]);
  const std::int64_t at = std::max<std::int64_t>(a[2], 0);
  const std::string data =
      pattern(static_cast<std::uint64_t>(a[3]), static_cast<std::size_t>(a[1]));
  Order order{.number = static_cast<std::int32_t>(a[3]), .offset = at, .size = a[1]};
  long done = -1;
  switch (a[4] % 8) {
    case 0:
    case 1: {
      const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
      done = pwrite(fd, data.data(), data.size(), at);
      close(fd);
      put(*file, at, data);
      break;
    }
    case 2:
    case 3:
      order.kind = Change::write;
      done = p.peer().ask(order, path).value;
      put(*file, at, data);
      break;
    case 4:
      done = truncate(path.c_str(), at);
      file->resize(static_cast<std::size_t>(at));
      break;
    case 5:
      order.kind = Change::truncate;
      done = p.peer().ask(order, path).value;
      file->resize(static_cast<std::size_t>(at));
      break;
    default: {
      // Puts another file under the same name. Readers that have the old file open keep it.
      const std::string fresh = p.tree().root + "/fresh";
      const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
      done = write(fd, data.data(), data.size());
      close(fd);
      if (rename(fresh.c_str(), path.c_str()) != 0) done = -1;
      file = std::make_shared<std::string>(data);
      break;
    }
  }
  p.say("model write {} to file {}, {} at {} = {}{}", a[4] % 8, a[0], a[1], at, done,
        done < 0 ? ": model: wrong" : "");
}

}  // namespace cube::differ
