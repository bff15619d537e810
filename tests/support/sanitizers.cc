// Settings that the sanitizers ask the program for.
// A Region is never freed (mappings outlive its users), and an attach that has to begin again
// leaves the last one behind.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
const char* __lsan_default_suppressions() { return "leak:cube::cache::Region::attach\n"; }

// TSan does not know that pthread_mutex_timedlock has the lock when it says EOWNERDEAD, nor of
// holders in other processes.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();
const char* __tsan_default_suppressions() { return "mutex:cube::\n"; }

// The suppression above needs a symbolizer, which a machine may lack; data races are what these
// builds are for.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
const char* __tsan_default_options() { return "report_mutex_bugs=0:die_after_fork=0"; }
