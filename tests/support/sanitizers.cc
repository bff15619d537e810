// Settings that the sanitizers ask the program for. A Region is never freed (its mappings outlive
// its users), and an attach that must start over leaves the previous Region behind.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
const char* __lsan_default_suppressions() { return "leak:cube::cache::Region::attach\n"; }

// TSan does not know that pthread_mutex_timedlock has acquired the lock when it returns EOWNERDEAD.
// It does not see lock holders in other processes either.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();
const char* __tsan_default_suppressions() { return "mutex:cube::\n"; }

// The suppression above needs a symbolizer, and not every machine has one. These builds only look
// for data races.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
const char* __tsan_default_options() { return "report_mutex_bugs=0:die_after_fork=0"; }

// A jump, or a child that shares this process's memory, leaves functions without executing their
// end. The marks of their frames stay on the stack, and would be taken for errors if frames were on
// two stacks.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
const char* __asan_default_options() { return "detect_stack_use_after_return=0"; }
