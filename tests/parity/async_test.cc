// Reads that the kernel makes later: POSIX aio, libaio's io_submit, io_uring by bare system calls.
#include <aio.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>

#include <atomic>

#include "cache/base/sys.h"
#include "tests/support/parity_case.h"

namespace {

aiocb block_of(int fd, void* to, std::size_t n, off_t at) {
  aiocb block{};
  block.aio_fildes = fd;
  block.aio_buf = to;
  block.aio_nbytes = n;
  block.aio_offset = at;
  block.aio_lio_opcode = LIO_READ;
  return block;
}
void wait_for(cube::parity::Case& t, aiocb& block) {
  const aiocb* list[1] = {&block};
  while (aio_error(&block) == EINPROGRESS) aio_suspend(list, 1, nullptr);
  CALL(aio_error(&block));
  CALL(aio_return(&block));
}

// A ring with one submission at a time. It does not use liburing, because no library can intercept
// liburing's system calls.
class Ring {
 public:
  enum class Entered { by_libc, by_assembly };
  explicit Ring(cube::parity::Case& t, Entered entered = Entered::by_libc) : entered_(entered) {
    fd_ = CALL(static_cast<int>(syscall(SYS_io_uring_setup, 8, &parameters_)));
    if (fd_ < 0) return;
    submissions_ = map(parameters_.sq_off.array + parameters_.sq_entries * sizeof(unsigned),
                       IORING_OFF_SQ_RING);
    completions_ = map(parameters_.cq_off.cqes + parameters_.cq_entries * sizeof(io_uring_cqe),
                       IORING_OFF_CQ_RING);
    entries_ = reinterpret_cast<io_uring_sqe*>(
        map(parameters_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
  }
  int fd() const { return fd_; }
  // Submits the entry, waits, and returns its result.
  int run(cube::parity::Case& t, const io_uring_sqe& entry) {
    const unsigned tail = at(submissions_, parameters_.sq_off.tail).load();
    const unsigned index = tail & at(submissions_, parameters_.sq_off.ring_mask).load();
    entries_[index] = entry;
    at(submissions_, parameters_.sq_off.array + index * 4).store(index);
    at(submissions_, parameters_.sq_off.tail).store(tail + 1);
    if (entered_ == Entered::by_assembly) {
      cube::base::sys::raw(SYS_io_uring_enter, fd_, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
    } else {
      CALL(syscall(SYS_io_uring_enter, fd_, 1L, 1L, static_cast<long>(IORING_ENTER_GETEVENTS),
                   nullptr, 0L));
    }
    const unsigned head = at(completions_, parameters_.cq_off.head).load();
    if (head == at(completions_, parameters_.cq_off.tail).load()) return -999;
    const unsigned slot = head & at(completions_, parameters_.cq_off.ring_mask).load();
    const auto* const all = reinterpret_cast<io_uring_cqe*>(completions_ + parameters_.cq_off.cqes);
    const int result = all[slot].res;
    at(completions_, parameters_.cq_off.head).store(head + 1);
    return result;
  }

 private:
  char* map(std::size_t n, long offset) {
    return static_cast<char*>(
        mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset));
  }
  static std::atomic_ref<unsigned> at(char* base, unsigned offset) {
    return std::atomic_ref<unsigned>(*reinterpret_cast<unsigned*>(base + offset));
  }
  Entered entered_;
  io_uring_params parameters_{};
  int fd_ = -1;
  char* submissions_ = nullptr;
  char* completions_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
};

io_uring_sqe entry_of(unsigned char operation, int fd, const void* address, unsigned n,
                      std::uint64_t offset) {
  io_uring_sqe entry{};
  entry.opcode = operation;
  entry.fd = fd;
  entry.addr = reinterpret_cast<std::uint64_t>(address);
  entry.len = n;
  entry.off = offset;
  return entry;
}

}  // namespace

PARITY(Async, AioInAllItsForms) {
  const char* const path = t.file("a", 300);
  char got[50] = {};
  const auto fresh = [&] { return CALL(open(path, O_RDONLY)); };
  {
    aiocb block = block_of(fresh(), got, sizeof got, 10);
    CALL(aio_read(&block));
    wait_for(t, block);
    t.bytes("aio_read", got, sizeof got);
  }
  {
    aiocb block = block_of(fresh(), got, sizeof got, 280);
    CALL(aio_read64(reinterpret_cast<aiocb64*>(&block)));
    wait_for(t, block);
    t.bytes("aio_read64", got, sizeof got);
  }
  {
    aiocb block = block_of(fresh(), got, sizeof got, 0);
    CALL(aio_write(&block));
    wait_for(t, block);
    CALL(aio_write64(reinterpret_cast<aiocb64*>(&block)));
    wait_for(t, block);
  }
  {
    aiocb block = block_of(fresh(), got, sizeof got, 0);
    CALL(aio_fsync(O_SYNC, &block));
    wait_for(t, block);
    aiocb data = block_of(fresh(), got, sizeof got, 0);
    CALL(aio_fsync64(O_DSYNC, reinterpret_cast<aiocb64*>(&data)));
    wait_for(t, data);
    CALL(aio_fsync(12345, &data));
  }
  {
    aiocb one = block_of(fresh(), got, 10, 100), two = block_of(fresh(), got + 10, 10, 200),
          none = block_of(-1, got, 1, 0);
    aiocb* list[4] = {&one, nullptr, &two, &none};
    CALL(lio_listio(LIO_WAIT, list, 4, nullptr));
    for (aiocb* block : {&one, &two, &none}) wait_for(t, *block);
    t.bytes("lio_listio", got, 20);
    aiocb three = block_of(fresh(), got, 10, 150);
    aiocb64* list64[1] = {reinterpret_cast<aiocb64*>(&three)};
    CALL(lio_listio64(LIO_WAIT, list64, 1, nullptr));
    wait_for(t, three);
    t.bytes("lio_listio64", got, 20);
    CALL(lio_listio(99, list, 1, nullptr));
  }
  const int fd = fresh();
  CALL(aio_cancel(fd, nullptr));
  aiocb negative = block_of(fd, got, 10, -1);
  CALL(aio_read(&negative));
  wait_for(t, negative);
}

PARITY(Async, IoSubmit) {
  // The library is loaded globally, as in a program that is linked with it.
  static void* const library = dlopen("libaio.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) GTEST_SKIP() << "no libaio.so.1";
  auto* const submit = cube::parity::function<int(aio_context_t, long, iocb**)>("io_submit");
  aio_context_t context = 0;
  CALL(syscall(SYS_io_setup, 8L, &context));
  const char* const path = t.file("a", 300);
  for (const bool by_number : {false, true}) {
    char got[3][10] = {};
    iocb blocks[3] = {};
    iocb* list[3];
    for (int i = 0; i < 3; ++i) {
      blocks[i].aio_lio_opcode = IOCB_CMD_PREAD;
      blocks[i].aio_fildes = static_cast<unsigned>(CALL(open(path, O_RDONLY)));
      blocks[i].aio_buf = reinterpret_cast<std::uint64_t>(got[i]);
      blocks[i].aio_nbytes = 10;
      blocks[i].aio_offset = i * 145;
      list[i] = &blocks[i];
    }
    errno = cube::parity::k_errno_kept;
    if (by_number) {
      t.note("syscall", syscall(SYS_io_submit, context, 3L, list));
    } else {
      t.note("io_submit", submit(context, 3, list));
    }
    io_event events[3] = {};
    CALL(syscall(SYS_io_getevents, context, 3L, 3L, events, nullptr));
    long sum = 0;
    for (const io_event& event : events) sum += event.res;
    t.line("bytes " + std::to_string(sum));
    for (const auto& part : got) t.bytes("got", part, 10);
    blocks[0].aio_fildes = 999;
    t.line(std::to_string(submit(context, 1, list)));
    t.line(std::to_string(submit(context, -1, list)));
    t.line(std::to_string(submit(0, 1, list)));
  }
  CALL(syscall(SYS_io_destroy, context));
}

PARITY(Async, IoUring) {
  const char* const path = t.file("a", 300);
  Ring ring(t);
  if (ring.fd() < 0) GTEST_SKIP() << "no io_uring: " << strerror(errno);
  char got[64] = {};
  const auto done = [&](const char* what, const io_uring_sqe& entry) {
    t.line(std::string(what) + " " + std::to_string(ring.run(t, entry)));
  };
  int fd = CALL(open(path, O_RDONLY));
  CALL(lseek(fd, 20, SEEK_SET));
  done("read", entry_of(IORING_OP_READ, fd, got, 10, 0));
  t.bytes("got", got, 10);
  done("read at the offset", entry_of(IORING_OP_READ, fd, got, 10, ~0ULL));
  t.bytes("got", got, 10);
  CALL(lseek(fd, 0, SEEK_CUR));
  fd = CALL(open(path, O_RDONLY));
  iovec parts[2] = {{got, 5}, {got + 5, 20}};
  done("readv", entry_of(IORING_OP_READV, fd, parts, 2, 290));
  t.bytes("got", got, 25);
  fd = CALL(open(path, O_RDONLY));
  done("write", entry_of(IORING_OP_WRITE, fd, got, 5, 0));
  struct statx x {};
  fd = CALL(open(path, O_RDONLY));
  io_uring_sqe question =
      entry_of(IORING_OP_STATX, fd, "", STATX_SIZE, reinterpret_cast<std::uint64_t>(&x));
  question.statx_flags = AT_EMPTY_PATH;
  done("statx", question);
  t.line("size " + std::to_string(x.stx_size));
  // Registers the file and then reads it by its index. The fd can be closed in between.
  fd = CALL(open(path, O_RDONLY));
  CALL(
      syscall(SYS_io_uring_register, ring.fd(), static_cast<long>(IORING_REGISTER_FILES), &fd, 1L));
  CALL(close(fd));
  io_uring_sqe fixed = entry_of(IORING_OP_READ, 0, got, 10, 40);
  fixed.flags = IOSQE_FIXED_FILE;
  done("registered", fixed);
  t.bytes("got", got, 10);
  // The ring opens and closes this fd.
  CALL(close(CALL(open(path, O_RDONLY))));
  io_uring_sqe opened = entry_of(IORING_OP_OPENAT, AT_FDCWD, path, 0, 0);
  const int by_ring = ring.run(t, opened);
  t.line("opened " + std::to_string(by_ring));
  CALL(read(by_ring, got, 10));
  t.bytes("got", got, 10);
  const int served = CALL(open(path, O_RDONLY));
  done("close", entry_of(IORING_OP_CLOSE, served, nullptr, 0, 0));
  CALL(read(served, got, 10));
  EXPECT_EQ(errno, EBADF);
  CALL(read(CALL(open(path, O_RDONLY)), got, 10));
  t.bytes("got", got, 10);
  done("bad fd", entry_of(IORING_OP_READ, 999, got, 10, 0));
  t.expect_served(CALL(open(path, O_RDONLY)));
}

PARITY(Async, FdClosedAndOpenedAgainByARing) {
  const char *const path = t.file("a", 5000), *const other = t.file("b", 6000);
  for (const auto entered : {Ring::Entered::by_libc, Ring::Entered::by_assembly}) {
    t.in_child([&] {
      const int fd = CALL(open(path, O_RDONLY));
      char got[10];
      CALL(read(fd, got, 10));
      Ring ring(t, entered);
      if (ring.fd() < 0) return;
      t.line("close " + std::to_string(ring.run(t, entry_of(IORING_OP_CLOSE, fd, nullptr, 0, 0))));
      const io_uring_sqe opened = entry_of(IORING_OP_OPENAT, AT_FDCWD, other, 0, 0);
      t.line("opened the same fd " + std::to_string(ring.run(t, opened) == fd));
      CALL(read(fd, got, 10));
      t.bytes("got", got, 10);
      CALL(pread(fd, got, 10, 5500));
      t.bytes("got", got, 10);
      struct stat st {};
      CALL(fstat(fd, &st));
      t.line("size " + std::to_string(st.st_size));
    });
  }
}

// As fio does.
PARITY(Async, IoUringEnteredByAssembly) {
  const char* const path = t.file("a", 300);
  t.in_child([&] {
    const int before = CALL(open(path, O_RDONLY));
    Ring ring(t, Ring::Entered::by_assembly);
    if (ring.fd() < 0) return;
    const int after = CALL(open(path, O_RDONLY));
    char got[10] = {};
    for (const int fd : {before, after}) {
      t.line("read " + std::to_string(ring.run(t, entry_of(IORING_OP_READ, fd, got, 10, 0))));
      t.bytes("got", got, 10);
    }
  });
}
