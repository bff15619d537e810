// Changes by other processes, completed before the next operation.
#include <fcntl.h>

#include "cache/base/sys.h"
#include "tests/differential/actor.h"
#include "tests/differential/player.h"

namespace cube::differ {
namespace {

constexpr Change k_contents[] = {Change::write, Change::append, Change::truncate, Change::rewrite,
                                 Change::touch, Change::chmod,  Change::read,     Change::write};
constexpr Change k_names[] = {Change::replace, Change::unlink, Change::replace, Change::create};

Order order_of(Change kind, const Arguments& a) {
  return {.kind = kind,
          .number = static_cast<std::int32_t>(a[4]) + 1,
          .offset = a[3] / 3,
          .size = a[3]};
}

void ask(Player& p, const char* who, Actor& actor, const Order& order, const std::string& path) {
  if (order.kind != Change::read) p.content_changed(path.c_str());
  const Answer answer = actor.ask(order, path);
  p.say("{}: change {} of {}, {} = {} {}", who, static_cast<int>(order.kind), p.show(path),
        order.size, answer.value, answer.error != 0 ? error_name(answer.error) : "");
}

}  // namespace

// The change is seen immediately, even through files that are open here, because the peer also runs
// under the library.
DIFFER_PLAY(peer_change) {
  ask(p, "peer", p.peer(), order_of(k_contents[a[2] % 8], a), p.path_inside(a[0], 0));
}

// Closes all files here first (SEMANTICS, Limits: "a file removed or replaced by another process
// while it is open here").
DIFFER_PLAY(peer_names) {
  p.close_all();
  ask(p, "peer", p.peer(), order_of(k_names[a[2] % 4], {0, 0, 0, 700, a[2]}),
      p.path_inside(a[0], 0));
}

DIFFER_PLAY(peer_holds) {
  ask(p, "peer", p.peer(), order_of(a[2] < 5 ? Change::hold : Change::release, {}),
      p.path_inside(a[0], 0));
}

// With the consistency `open` or `ttl:0`, only the next open sees the change, so no file may be
// open here. A change that keeps size and modification time is not noticed (SEMANTICS, Freshness).
// So each change sets a different time, and does not affect mode and links.
void outside(Player& p, Change kind, const Arguments& a) {
  p.close_all();
  const std::string path = p.path_inside(a[0], 0);
  struct ::stat st {};
  const bool is_linked =
      !base::sys::failed(base::sys::fstatat(AT_FDCWD, path.c_str(), &st, 0)) && st.st_nlink > 1;
  if (is_linked && kind >= Change::replace) return;
  Order order = order_of(kind == Change::chmod ? Change::touch : kind, a);
  order.number = static_cast<std::int32_t>(p.position()) + 100;
  ask(p, "outsider", p.outsider(), order, path);
}
DIFFER_PLAY(outside_change) { outside(p, k_contents[a[2] % 8], a); }
DIFFER_PLAY(outside_names) { outside(p, k_names[a[2] % 4], a); }

}  // namespace cube::differ
