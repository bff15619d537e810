// Blocks the handler of `storm`'s timer as long as an object of this class exists.
#pragma once

#include <csignal>

namespace cube::differ {

class BlockAlarm {
 public:
  BlockAlarm() {
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, &before_);
  }
  ~BlockAlarm() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockAlarm(const BlockAlarm&) = delete;
  BlockAlarm& operator=(const BlockAlarm&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace cube::differ
