// A pin on a chunk, which is released even if a jump (siglongjmp) leaves the scope. The object must
// live on the stack of its user. Thread safety: an object belongs to one thread; async-signal-safe.
#pragma once

#include "cache/base/memory/held.h"
#include "cache/region/large/chunks.h"

namespace cube::cache {

class KeptClaim {
 public:
  KeptClaim() { base::Held::give_back_left(this); }
  explicit KeptClaim(Chunks::Claim&& claim) : KeptClaim() { take(std::move(claim)); }
  KeptClaim(const KeptClaim&) = delete;
  KeptClaim& operator=(const KeptClaim&) = delete;
  ~KeptClaim() {
    if (is_noted_ && !base::Held::let_go(this, counter())) claim_.forget();
  }
  // Called at most once.
  void take(Chunks::Claim&& claim) {
    claim_ = std::move(claim);
    is_noted_ = claim_ && base::Held::note(this, give_up, counter(), claim_.words().epoch);
  }
  explicit operator bool() const { return static_cast<bool>(claim_); }
  const Chunks::Claim& operator*() const { return claim_; }
  const Chunks::Claim* operator->() const { return &claim_; }

 private:
  std::uintptr_t counter() const {
    return reinterpret_cast<std::uintptr_t>(claim_.words().counter);
  }
  static void give_up(std::uintptr_t counter, std::size_t epoch) {
    Chunks::Claim::give_up(reinterpret_cast<std::atomic<std::uint32_t>*>(counter),
                           static_cast<std::uint32_t>(epoch));
  }

  Chunks::Claim claim_;
  bool is_noted_ = false;
};

}  // namespace cube::cache
