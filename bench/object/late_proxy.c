// A TCP proxy for benchmarks. It makes a server on this machine look like a distant server: each
// request is delayed, and all answers share a bandwidth.
//   late_proxy PORT_TO_LISTEN_ON PORT_OF_THE_SERVER MILLISECONDS MEGABYTES_PER_SECOND
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in server_address;
static long delay_ms;
static double bytes_per_ns;  // 0: no limit
static pthread_mutex_t line_lock = PTHREAD_MUTEX_INITIALIZER;
static double line_free_ns;  // when the line will have passed all bytes so far

struct pair {
  int client, server;
};

static void end_both(const struct pair* pair) {
  shutdown(pair->client, SHUT_RDWR);
  shutdown(pair->server, SHUT_RDWR);
}

// A client waits for each answer before it sends the next request, so one sleep delays only one
// request.
static void* pass_requests(void* of) {
  struct pair* const pair = of;
  char bytes[64 << 10];
  const struct timespec delay = {delay_ms / 1000, delay_ms % 1000 * 1000000};
  for (ssize_t n; (n = read(pair->client, bytes, sizeof bytes)) > 0;) {
    nanosleep(&delay, NULL);
    for (ssize_t done = 0, wrote; done < n; done += wrote) {
      wrote = write(pair->server, bytes + done, (size_t)(n - done));
      if (wrote <= 0) break;
    }
  }
  end_both(pair);
  return NULL;
}

// Waits until the line has passed all earlier bytes.
static void wait_for_line(ssize_t bytes) {
  if (bytes_per_ns == 0) return;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double now_ns = (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
  pthread_mutex_lock(&line_lock);
  if (line_free_ns < now_ns) line_free_ns = now_ns;
  const double begin_ns = line_free_ns;
  line_free_ns += (double)bytes / bytes_per_ns;
  pthread_mutex_unlock(&line_lock);
  const struct timespec begin = {(time_t)(begin_ns / 1e9), (long)fmod(begin_ns, 1e9)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &begin, NULL);
}

static void* pass_answers(void* of) {
  struct pair* const pair = of;
  pthread_t requests;
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) exit(1);
  fcntl(pipe_ends[1], F_SETPIPE_SZ, 256 << 10);
  pthread_create(&requests, NULL, pass_requests, pair);
  for (ssize_t n; (n = splice(pair->server, NULL, pipe_ends[1], NULL, 256 << 10, 0)) > 0;) {
    wait_for_line(n);
    for (ssize_t wrote = 0; n > 0; n -= wrote) {
      wrote = splice(pipe_ends[0], NULL, pair->client, NULL, (size_t)n, SPLICE_F_MOVE);
      if (wrote <= 0) break;
    }
  }
  end_both(pair);
  pthread_join(requests, NULL);
  close(pair->client);
  close(pair->server);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  free(pair);
  return NULL;
}

int main(int count, char** words) {
  if (count != 5) return 2;
  const int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in own = {
      AF_INET, htons((unsigned short)atoi(words[1])), {htonl(INADDR_LOOPBACK)}, {0}};
  server_address = own;
  server_address.sin_port = htons((unsigned short)atoi(words[2]));
  delay_ms = atol(words[3]);
  bytes_per_ns = atof(words[4]) / 1e3;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr*)&own, sizeof own) != 0 || listen(listener, 1024) != 0) {
    perror("late_proxy");
    return 1;
  }
  for (;;) {
    struct pair* const pair = malloc(sizeof *pair);
    pthread_t thread;
    pair->client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    pair->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(pair->server, (struct sockaddr*)&server_address, sizeof server_address) != 0) {
      close(pair->client);
      close(pair->server);
      free(pair);
      continue;
    }
    setsockopt(pair->client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(pair->server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pthread_create(&thread, NULL, pass_answers, pair);
    pthread_detach(thread);
  }
}
