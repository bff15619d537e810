#include "tests/differential/actor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "cache/base/sys.h"
#include "tests/differential/tree.h"

namespace cube::differ {
namespace {

namespace sys = base::sys;

long put(int fd, const Order& order, off_t at) {
  const std::string bytes =
      pattern(static_cast<std::uint64_t>(order.number), static_cast<std::size_t>(order.size));
  return fd < 0 ? -1 : pwrite(fd, bytes.data(), bytes.size(), at);
}

void set_time(const Order& order) {
  const timespec times[2] = {{k_age, 0}, {k_age + order.number, 0}};
  if (order.number != 0) utimensat(AT_FDCWD, order.path, times, 0);
}

long change_content(const Order& order, int flags, bool at_end) {
  const int fd = open(order.path, flags | O_CLOEXEC, 0644);
  struct ::stat st {};
  if (fd >= 0) fstat(fd, &st);
  const long done = put(fd, order, at_end ? st.st_size : order.offset);
  const int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return done;
}

long replace(const Order& order) {
  Order fresh = order;
  std::strcat(fresh.path, "~new");
  fresh.offset = 0;
  if (change_content(fresh, O_WRONLY | O_CREAT | O_TRUNC, false) < 0) return -1;
  set_time(fresh);
  const long done = rename(fresh.path, order.path);
  const int error = errno;
  if (done != 0) unlink(fresh.path);
  errno = error;
  return done;
}

long read_file(const Order& order) {
  const int fd = open(order.path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  std::vector<char> bytes(400'000);
  const long n = read(fd, bytes.data(), bytes.size());
  close(fd);
  return n;
}

long obey(const Order& order, std::vector<int>& held) {
  switch (order.kind) {
    case Change::write: return change_content(order, O_WRONLY, false);
    case Change::append: return change_content(order, O_WRONLY, true);
    case Change::truncate: return truncate(order.path, order.offset);
    case Change::rewrite: return change_content(order, O_WRONLY | O_TRUNC, false);
    case Change::touch: return 0;
    case Change::chmod: return chmod(order.path, static_cast<mode_t>(order.size) & 0777);
    case Change::read: return read_file(order);
    case Change::replace: return replace(order);
    case Change::unlink: return unlink(order.path);
    case Change::create: return change_content(order, O_WRONLY | O_CREAT | O_EXCL, false);
    case Change::hold:
      held.push_back(open(order.path, O_RDWR | O_CLOEXEC));
      return held.back() < 0 ? -1 : 0;
    case Change::release:
      for (const int fd : held) {
        if (fd >= 0) close(fd);
      }
      held.clear();
      return 0;
  }
  return -1;
}

// Makes plain system calls, because these calls are not compared.
bool transfer(int socket, void* data, std::size_t n, bool is_sent) {
  for (std::size_t done = 0; done < n;) {
    char* const at = static_cast<char*>(data) + done;
    const long moved = is_sent ? sys::write(socket, at, n - done) : sys::read(socket, at, n - done);
    if (moved == -EINTR) continue;
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}

}  // namespace

Answer Actor::ask(Order order, const std::string& path) {
  Answer answer{-1, ESRCH};
  if (socket_ < 0 || path.size() + 8 > sizeof order.path) return answer;
  std::memcpy(order.path, path.c_str(), path.size() + 1);
  if (!transfer(socket_, &order, sizeof order, true) ||
      !transfer(socket_, &answer, sizeof answer, false))
    answer.error = EPIPE;
  return answer;
}

void Actor::serve(int socket) {
  std::vector<int> held;
  Order order;
  while (transfer(socket, &order, sizeof order, false)) {
    errno = 0;
    Answer answer;
    answer.value = obey(order, held);
    answer.error = answer.value < 0 ? errno : 0;
    if (answer.value >= 0 && order.kind <= Change::touch) set_time(order);
    if (!transfer(socket, &answer, sizeof answer, true)) break;
  }
}

}  // namespace cube::differ
