// Settings that the sanitizers ask the program for. A Region is never freed (mappings outlive its
// users), and an attach that has to start over leaves the previous one behind.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
const char* __lsan_default_suppressions() { return "leak:cube::cache::Region::attach\n"; }

// TSan knows neither that pthread_mutex_timedlock has the lock when it returns EOWNERDEAD, nor of
// holders in other processes.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();
const char* __tsan_default_suppressions() { return "mutex:cube::\n"; }

// The suppression above needs a symbolizer, which a machine may lack; these builds are for data
// races.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
const char* __tsan_default_options() { return "report_mutex_bugs=0:die_after_fork=0"; }

// A child that shares this process's memory, or a jump, leaves functions without their end: marks
// of their frames stay on the stack and are taken for errors when frames lie on two stacks.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
const char* __asan_default_options() { return "detect_stack_use_after_return=0"; }
