// Reads and seeks in any order and with any numbers, on a served file and on a kernel fd of the
// same file. All results, all bytes of the buffers and all offsets must be equal. Input: the file,
// then one call after another.
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include "shim/calls/file_calls.h"
#include "shim/calls/name/path_calls.h"
#include "shim/calls/open/open_plan.h"
#include "shim/fd/materialize.h"
#include "shim/lifecycle/lifecycle.h"
#include "tests/fuzz/fuzz.h"

namespace cube::shim {
namespace {

namespace sys = base::sys;
using file_calls::Answer;

constexpr std::size_t k_sizes[] = {0, 1, 100, 4096, 5000, 32'768, 65'537};
constexpr std::size_t k_buffer = 70'000;

std::vector<std::string>* g_paths;

// Two copies of the program's memory: as the served call wrote it, and as the kernel wrote it.
struct Memory {
  std::byte served[k_buffer], kernel[k_buffer];
};

class Pair {
 public:
  Pair(const std::string& path, Memory& memory)
      : memory_(memory), kernel_(static_cast<int>(sys::open(path.c_str(), O_RDONLY))) {
    OpenPlan plan(AT_FDCWD, path.c_str(), O_RDONLY);
    served_ =
        plan.is_answered() ? plan.result() : static_cast<int>(sys::open(path.c_str(), O_RDONLY));
    FUZZ_CHECK(served_ >= 0 && kernel_ >= 0, "%s", path.c_str());
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    if (!file_calls::close(served_)) sys::close(served_);
    sys::close(kernel_);
  }
  void step(fuzz::Input& input);

 private:
  // If the shim has no answer, it has made the fd a kernel file.
  template <typename... Arguments>
  void compare(const char* what, const Answer& answer, long number, Arguments... arguments) {
    const long served = answer ? *answer : sys::raw(number, served_, arguments...);
    served_result_ = served;
    what_ = what;
  }
  void expect(long kernel) {
    FUZZ_CHECK(served_result_ == kernel, "%s: %ld, the kernel says %ld", what_, served_result_,
               kernel);
    FUZZ_CHECK(std::memcmp(memory_.served, memory_.kernel, k_buffer) == 0, "%s: other bytes",
               what_);
  }
  void vector_call(fuzz::Input& input, bool positioned);

  Memory& memory_;
  int kernel_, served_;
  long served_result_ = 0;
  const char* what_ = "";
};

// Returns a length that usually fits the buffer and is sometimes larger than any file.
std::size_t length_from(fuzz::Input& input) {
  const std::uint8_t how = input.byte();
  if (how < 200) return input.number<std::uint32_t>() % k_buffer;
  constexpr std::size_t k_odd[] = {0,        0x7ffff000,      0x7ffff001, SSIZE_MAX,
                                   SIZE_MAX, SIZE_MAX - 4095, 1ULL << 47, 1ULL << 32};
  return how < 240 ? k_odd[how % 8] : input.number<std::uint64_t>();
}
std::int64_t offset_from(fuzz::Input& input) {
  const std::uint8_t how = input.byte();
  if (how < 180) return input.number<std::uint32_t>() % k_buffer;
  if (how < 210) return -static_cast<std::int64_t>(input.number<std::uint32_t>() % k_buffer);
  constexpr std::int64_t k_odd[] = {INT64_MAX,     INT64_MIN,        -1,       0xfffffff0000,
                                    0xfffffff0001, INT64_MAX - 4096, 1LL << 32};
  return how < 240 ? k_odd[how % 7] : input.number<std::int64_t>();
}

void Pair::vector_call(fuzz::Input& input, bool positioned) {
  ::iovec served[8] = {}, kernel[8] = {};
  int count = input.byte() % 9;
  std::size_t used = 0;
  for (int i = 0; i < count; ++i) {
    // The parts are adjacent. Sometimes a part is null or too long.
    const std::size_t n = length_from(input);
    const std::uint8_t kind = input.byte();
    const std::size_t at = std::min(used, k_buffer);
    served[i] = {kind >= 250 ? nullptr : memory_.served + at, n};
    kernel[i] = {kind >= 250 ? nullptr : memory_.kernel + at, n};
    // A part may reach beyond the buffer only if the file cannot fill it.
    if (n < k_buffer * 16 && at + n > k_buffer)
      served[i].iov_len = kernel[i].iov_len = k_buffer - at;
    const bool is_negative = static_cast<ssize_t>(n) < 0;
    if (n >= k_buffer * 16 && at != 0 && !is_negative) served[i].iov_len = kernel[i].iov_len = 0;
    if (kind < 250) used += n >= k_buffer * 16 ? k_buffer : served[i].iov_len;
  }
  if (input.byte() == 255) count = -1;
  if (positioned) {
    const std::int64_t at = offset_from(input);
    compare("preadv", file_calls::preadv(served_, served, count, at), SYS_preadv, sys::arg(served),
            count, at);
    expect(sys::raw(SYS_preadv, kernel_, sys::arg(kernel), count, at));
  } else {
    compare("readv", file_calls::readv(served_, served, count), SYS_readv, sys::arg(served), count);
    expect(sys::raw(SYS_readv, kernel_, sys::arg(kernel), count));
  }
}

void Pair::step(fuzz::Input& input) {
  switch (input.byte() % 10) {
    case 0: {
      const std::size_t n = length_from(input);
      compare("read", file_calls::read(served_, memory_.served, n), SYS_read,
              sys::arg(memory_.served), static_cast<long>(n));
      return expect(sys::read(kernel_, memory_.kernel, n));
    }
    case 1: {
      const std::size_t n = length_from(input);
      const std::int64_t at = offset_from(input);
      compare("pread", file_calls::pread(served_, memory_.served, n, at), SYS_pread64,
              sys::arg(memory_.served), static_cast<long>(n), at);
      return expect(sys::pread(kernel_, memory_.kernel, n, at));
    }
    case 2: return vector_call(input, false);
    case 3: return vector_call(input, true);
    case 4:
    case 5: {
      const std::int64_t to = offset_from(input);
      const int whence = input.byte() % 7 - 1;
      compare("lseek", file_calls::lseek(served_, to, whence), SYS_lseek, to, whence);
      return expect(sys::lseek(kernel_, to, whence));
    }
    case 6: {
      struct ::stat served {
      }, kernel{};
      compare("fstat", file_calls::stat(served_, &served), SYS_fstat, sys::arg(&served));
      expect(sys::fstat(kernel_, &kernel));
      served.st_atim = kernel.st_atim = {};
      FUZZ_CHECK(std::memcmp(&served, &kernel, sizeof served) == 0, "fstat");
      return;
    }
    case 7: {
      int served = -1, kernel = -1;
      compare("FIONREAD", file_calls::ioctl(served_, FIONREAD, &served), SYS_ioctl, FIONREAD,
              sys::arg(&served));
      expect(sys::raw(SYS_ioctl, kernel_, FIONREAD, sys::arg(&kernel)));
      FUZZ_CHECK(served == kernel, "FIONREAD: %d, the kernel says %d", served, kernel);
      return;
    }
    case 8: {
      // Makes a copy, which shares the offset, and closes the first fd.
      const auto copy = static_cast<int>(file_calls::fcntl(served_, F_DUPFD, 100).value_or(-1));
      if (copy < 0) return;
      if (!file_calls::close(served_)) sys::close(served_);
      served_ = copy;
      return;
    }
    default:
      // Sometimes the served file becomes a kernel file in between.
      if (input.byte() % 16 == 0) materialize(served_);
      return;
  }
}

void run(fuzz::Input input) {
  static auto* const memory = new Memory;
  std::memset(memory, 0x5a, sizeof *memory);
  Pair pair((*g_paths)[input.byte() % g_paths->size()], *memory);
  while (input.left() != 0) pair.step(input);
}

}  // namespace
}  // namespace cube::shim

int LLVMFuzzerInitialize(int*, char***) {
  using cube::fuzz::directory;
  auto* const paths = cube::shim::g_paths = new std::vector<std::string>;
  const std::string data = directory() + "/data";
  std::filesystem::create_directory(data);
  for (const std::size_t size : cube::shim::k_sizes) {
    std::string content(size, '\0');
    for (std::size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 31 + (i >> 8));
    paths->push_back(data + "/f" + std::to_string(size));
    cube::fuzz::write_file(paths->back(), content);
  }
  auto* const config =
      new cube::base::Config(cube::base::parse_config([](const char*) { return nullptr; }).config);
  config->prefixes = {data};
  config->ram_dir = directory();
  config->ram = {.is_percent = false, .value = 32 << 20};
  cube::shim::lifecycle::start(*config, cube::base::current_process(), false);
  std::atexit(cube::shim::lifecycle::leave);
  return 0;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cube::shim::run({data, size});
  return 0;
}
