// Builds seccomp filters by hand. The system calls that a filter names fail with an error or kill
// the process.
#pragma once
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#define CALL(name) \
  { #name, SYS_##name }
static const struct {
  const char* name;
  unsigned number;
} k_calls[] = {
    CALL(read),
    CALL(write),
    CALL(open),
    CALL(close),
    CALL(fstat),
    CALL(lseek),
    CALL(mmap),
    CALL(mprotect),
    CALL(munmap),
    CALL(brk),
    CALL(pread64),
    CALL(preadv),
    CALL(pwrite64),
    CALL(dup),
    CALL(dup3),
    CALL(getpid),
    CALL(sendfile),
    CALL(flock),
    CALL(pipe2),
    CALL(pipe),
    CALL(exit_group),
    CALL(exit),
    CALL(openat),
    CALL(newfstatat),
    CALL(rt_sigprocmask),
    CALL(rt_sigpending),
    CALL(rt_sigtimedwait),
    CALL(rt_sigaction),
    CALL(rt_sigreturn),
    CALL(io_uring_setup),
    CALL(io_uring_enter),
    CALL(io_uring_register),
    CALL(memfd_create),
    CALL(set_robust_list),
    CALL(get_robust_list),
    CALL(openat2),
    CALL(statx),
    CALL(membarrier),
    CALL(madvise),
    CALL(mremap),
    CALL(mlock),
    CALL(copy_file_range),
    CALL(pidfd_open),
    CALL(pidfd_getfd),
    CALL(pidfd_send_signal),
    CALL(rseq),
    CALL(clone3),
    CALL(close_range),
    CALL(futex),
    CALL(fallocate),
    CALL(fcntl),
    CALL(process_vm_readv),
    CALL(process_vm_writev),
    CALL(linkat),
    CALL(unlinkat),
    CALL(statfs),
    CALL(prlimit64),
    CALL(ftruncate),
    CALL(fchmod),
    CALL(getcwd),
    CALL(geteuid),
    CALL(getuid),
    CALL(getgid),
    CALL(getegid),
    CALL(kill),
    CALL(readlinkat),
    CALL(readlink),
    CALL(sched_yield),
    CALL(getrandom),
    CALL(uname),
    CALL(clock_gettime),
    CALL(gettid),
    CALL(tgkill),
    CALL(getdents64),
    CALL(fadvise64),
    CALL(prctl),
    CALL(ioctl),
    CALL(wait4),
    CALL(clone),
    CALL(getppid),
    CALL(sysinfo),
    CALL(sched_setscheduler),
    CALL(getpriority),
    CALL(setpriority),
    CALL(sched_getscheduler),
    CALL(sched_setaffinity),
    CALL(ioprio_get),
    CALL(ioprio_set),
    CALL(mincore),
    CALL(socket),
    CALL(connect),
    CALL(ppoll),
};
#undef CALL

enum { k_most_calls = 120 };
// Fills in the call numbers for a list of names. Returns -1 if a name is unknown.
static int company_call_numbers(char* names, unsigned* numbers) {
  int n = 0;
  for (char* name; (name = strsep(&names, ",")) != NULL;) {
    size_t i = 0;
    while (i < sizeof k_calls / sizeof *k_calls && strcmp(k_calls[i].name, name) != 0) ++i;
    if (i == sizeof k_calls / sizeof *k_calls || n == k_most_calls) return -1;
    numbers[n++] = k_calls[i].number;
  }
  return n;
}

static int company_install(char* names, unsigned for_them, unsigned for_others) {
  unsigned numbers[k_most_calls];
  const int n = company_call_numbers(names, numbers);
  if (n < 0) return errno = EINVAL, -1;
  struct sock_filter program[k_most_calls + 6];
  int at = 0;
  program[at++] =
      (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
  program[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
  program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  program[at++] =
      (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (int i = 0; i < n; ++i, ++at)
    program[at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i],
                                               (unsigned char)(n - i), 0);
  program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, for_others);
  program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, for_them);
  const struct sock_fprog filter = {(unsigned short)at, program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}

static int company_refuse(const char* how, char* names) {
  unsigned action = SECCOMP_RET_KILL_PROCESS;
  if (strcmp(how, "EPERM") == 0) action = SECCOMP_RET_ERRNO | EPERM;
  if (strcmp(how, "ENOSYS") == 0) action = SECCOMP_RET_ERRNO | ENOSYS;
  if (strcmp(how, "EACCES") == 0) action = SECCOMP_RET_ERRNO | EACCES;
  return company_install(names, action, SECCOMP_RET_ALLOW);
}
static int company_allow_only(char* names) {
  return company_install(names, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
}
