// The socket on which jobs announce what they will read: which paths it passes on, and which
// clients are accepted, kept and dropped.
#include "prefetch/order/announced/announcements.h"

#include <grp.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "prefetch/order/announced/announcement_server.h"
#include "prefetch/threads/background_thread.h"
#include "tests/prefetch/announcements_fixture.h"

namespace cube::prefetch::testing {
namespace {

TEST_F(Announced, PathsAreGivenAndReportedAsTaken) {
  const auto one = client(3);
  ASSERT_TRUE(one.say(begin(7, "/data/train")));
  ASSERT_TRUE(one.say(paths(7, 40, numbered("", 40, 45))));
  EXPECT_EQ(take(2), numbered("/data/train/", 40, 42));
  one.hear_taken(7, 42);
  ASSERT_TRUE(one.say(end(7)));
  EXPECT_EQ(take(3), numbered("/data/train/", 42, 45));
  one.hear_taken(7, 45);
  EXPECT_FALSE(has_more());
}

TEST_F(Announced, ServerIdentifiesItself) {
  const AnnounceClient one(socket);
  WelcomeMessage welcome;
  const std::string heard = one.hear();
  ASSERT_EQ(heard.size(), sizeof welcome);
  heard.copy(reinterpret_cast<char*>(&welcome), sizeof welcome);
  EXPECT_EQ(welcome.magic, k_announce_magic);
  EXPECT_EQ(welcome.version, k_announce_version);
  EXPECT_EQ(welcome.pid, static_cast<std::uint32_t>(getpid()));
}

// Simulates a process that is stopped between the start of the thread and the thread's first step,
// while another process becomes the leader.
TEST_F(Announced, ThreadThatRunsAfterItsEndLeavesTheSocketToItsOwner) {
  AnnouncementsOptions options{.socket = socket, .prefixes = {"/data"}};
  options.leads = [](void*) { return false; };
  const CrewPtr<AnnouncementServer> late(new AnnouncementServer(std::move(options)));
  late->begin_stop();
  late->gate.close();
  ASSERT_EQ(late->start(), 0);
  ASSERT_TRUE(late->wait_for_end(60'000'000'000));
  EXPECT_EQ(late->state.load(), AnnouncementServer::State::ended);
  client();
}

TEST_F(Announced, ArrivalsAreReportedIfNothingWasThere) {
  PlannedFile file;
  EXPECT_EQ(source->next(file), PathSource::Next::none_yet);
  const auto one = client();
  ASSERT_TRUE(one.say(begin(0, "/data")));
  for (int i = 0; i < 5; ++i) {
    const int before = arrived.load();
    ASSERT_TRUE(one.say(paths(0, static_cast<std::uint64_t>(i), {"a"})));
    for (auto seen = arrivals.now(); arrived.load() == before; seen = arrivals.now()) {
      arrivals.wait(seen, 60'000'000'000ULL);
      ASSERT_NE(arrived.load(), before) << "not told";
    }
    EXPECT_EQ(source->next(file), PathSource::Next::file);
    EXPECT_EQ(source->next(file), PathSource::Next::none_yet);
  }
}

TEST_F(Announced, ClientFarAheadWaitsAndNeedNotReadAnswers) {
  const auto one = client();
  ASSERT_TRUE(one.say(begin(0, "/data")));
  const std::string name(60, 'x');
  std::size_t said = 0, bytes = 0;
  const auto more = [&] { return paths(0, said, numbered(name, said, said + 500)); };
  // Nothing takes the paths, so in the end the socket is full.
  pollfd waits{one.fd(), POLLOUT, 0};
  while (poll(&waits, 1, 2000) == 1 && one.try_to_say(more())) {
    bytes += more().size();
    said += 500;
    ASSERT_LT(bytes, 8U << 20) << "the server buffers without end";
  }
  EXPECT_GT(bytes, 400U << 10);
  // When everything has arrived in order, there is room again.
  for (std::size_t taken = 0; taken < 60'000 && !HasFailure(); ++taken) {
    ASSERT_EQ(take().path, "/data/" + name + std::to_string(taken));
    for (; said - taken < 2000; said += 500) ASSERT_TRUE(one.say(more()));
  }
}

TEST_F(Announced, ClientThatDiesIsDroppedUnlessItHasSaidGoodbye) {
  auto one = client(), two = client();
  ASSERT_TRUE(one.say(begin(0, "/data")));
  ASSERT_TRUE(one.say(paths(0, 0, numbered("", 0, 2000))));
  ASSERT_TRUE(two.say(begin(0, "/more")));
  ASSERT_TRUE(two.say(paths(0, 0, numbered("", 0, 2000))));
  ASSERT_TRUE(two.say(bye()));
  take(1);
  one.close();
  two.close();
  barrier();
  std::string last;
  PlannedFile file;
  while (source->next(file) == PathSource::Next::file) {
    EXPECT_TRUE(file.path.starts_with("/more/")) << file.path;
    last = file.path;
  }
  EXPECT_EQ(last, "/more/1999");
}

// The client may leave before the server polls, or between the poll and a read.
TEST_F(Announced, GoodbyeOfAClientThatHasReadNothingIsHeard) {
  for (int round = 0; round < 50; ++round) {
    AnnounceClient silent(socket);
    // The welcome has arrived, but is not read.
    pollfd welcome{silent.fd(), POLLIN, 0};
    ASSERT_EQ(poll(&welcome, 1, 60'000), 1);
    ASSERT_TRUE(silent.say(hello(0)));
    ASSERT_TRUE(silent.say(begin(0, "/data")));
    ASSERT_TRUE(silent.say(paths(0, 0, numbered("", 0, 3))));
    ASSERT_TRUE(silent.say(bye()));
    silent.close();
    ASSERT_EQ(take(3), (Names{"/data/0", "/data/1", "/data/2"}));
    barrier();
    EXPECT_FALSE(has_more());
  }
}

TEST_F(Announced, ClientThatLeavesAFullSocketBehindIsDropped) {
  auto one = client();
  ASSERT_TRUE(one.say(begin(0, "/data")));
  std::size_t said = 0;
  pollfd waits{one.fd(), POLLOUT, 0};
  while (poll(&waits, 1, 1000) == 1 &&
         one.try_to_say(paths(0, said, numbered(std::string(60, 'x'), said, said + 500))))
    said += 500;
  one.close();
  barrier();
  EXPECT_FALSE(has_more());
}

TEST_F(Announced, InvalidMessageEndsOnlyItsConnection) {
  ::testing::internal::CaptureStderr();
  const auto good = client();
  ASSERT_TRUE(good.say(begin(0, "/data")));
  std::string noise;
  for (int i = 0; i < 60'000; ++i) noise.push_back(static_cast<char>(i * 7919 >> 3));
  const Names hostile{"GET / HTTP/1.1",
                      paths(0, 0, {"a"}),
                      begin(0).substr(0, 9),
                      noise,
                      std::string(150'000, '\1'),
                      bye() + "x",
                      hello(),
                      hello(),
                      hello(),
                      hello(),
                      hello(),
                      hello()};
  for (const auto& message : hostile) {
    const auto bad = client();
    ASSERT_TRUE(bad.say(message));
    bad.expect_to_be_dropped(message.substr(0, 20));
    ASSERT_TRUE(good.say(paths(0, static_cast<std::uint64_t>(&message - hostile.data()), {"a"})));
    EXPECT_EQ(take(1), Names{"/data/a"});
  }
  EXPECT_FALSE(has_more());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 8) << log;
  EXPECT_NE(log.find("cubeshim: warn: a client of announcements was dropped (rank 0): a message is "
                     "of no known type\n"),
            std::string::npos)
      << log;
  EXPECT_NE(log.find("a message is too long\n"), std::string::npos) << log;
  EXPECT_NE(log.find("(further ones are not reported)\n"), std::string::npos) << log;
}

TEST_F(Announced, TooManyClientsAreTurnedAwayAndSilentOnesGiveWay) {
  const AnnounceClient silent(socket);
  EXPECT_EQ(silent.hear().size(), sizeof(WelcomeMessage));
  std::vector<AnnounceClient> clients;
  for (std::uint32_t i = 0; i < 63; ++i) clients.push_back(client(i));
  barrier();  // takes the silent client's place, and leaves
  silent.expect_to_be_dropped("it said nothing");
  clients.push_back(client(63));
  const AnnounceClient late(socket);
  EXPECT_EQ(late.hear(), "");
  // Each of the 64 clients is served. When a client has left, there is room for another.
  for (const auto& one : clients) {
    ASSERT_TRUE(one.say(begin(0, "/data")));
    ASSERT_TRUE(one.say(paths(0, 0, {"a"})));
  }
  take(64);
  clients.pop_back();
  const auto next = client();
  ASSERT_TRUE(next.say(begin(0, "/data")));
  ASSERT_TRUE(next.say(paths(0, 0, {"b"})));
  EXPECT_EQ(take(1), Names{"/data/b"});
}

TEST_F(Announced, SocketIsPrivateAndRemovedWithTheServer) {
  struct ::stat st {};
  ASSERT_EQ(lstat(socket.c_str(), &st), 0);
  EXPECT_TRUE(S_ISSOCK(st.st_mode));
  EXPECT_EQ(st.st_mode & 07777, 0600U);
  const auto one = client();
  source.reset();
  EXPECT_EQ(lstat(socket.c_str(), &st), -1);
  one.expect_to_be_dropped("the server has gone");
}

TEST_F(Announced, ListeningCanBeEndedByAnotherThreadAndTwice) {
  client();
  std::thread([&] { source->stop_listening(); }).join();
  source->stop_listening();
  EXPECT_TRUE(wait_for_background_threads(2'000));
  EXPECT_FALSE(AnnounceClient(socket).is_connected());
  source.reset();
}

// A connection to the socket's name wakes the listening thread, which must also end if the name is
// gone.
TEST_F(Announced, ThreadEndsThoughItsSocketWasRemoved) {
  const AnnounceClient silent = client();
  ASSERT_EQ(unlink(socket.c_str()), 0);
  source.reset();
  EXPECT_TRUE(wait_for_background_threads(20'000));
}

TEST_F(Announced, ForkedChildLeavesTheServerRunning) {
  const pid_t child = fork();
  if (child == 0) {
    source.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const auto one = client();
  ASSERT_TRUE(one.say(begin(0, "/data")));
  ASSERT_TRUE(one.say(paths(0, 0, {"a"})));
  EXPECT_EQ(take(1), Names{"/data/a"});
}

TEST_F(Announced, ASocketThatADeadProcessLeftIsReplaced) {
  const std::string path = dir / "dead.sock";
  const pid_t child = fork();
  if (child == 0) {
    source.release();
    static_cast<void>(start_at(path).release());
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(access(path.c_str(), F_OK), 0);
  source = start_at(path);
  ASSERT_NE(source, nullptr) << why;
  socket = path;
  const auto one = client();
  ASSERT_TRUE(one.say(begin(0, "/data")));
  ASSERT_TRUE(one.say(paths(0, 0, {"a"})));
  EXPECT_EQ(take(1), Names{"/data/a"});
}

TEST_F(Announced, StartFailsIfAnotherFileHasTheName) {
  const std::string file = dir.write("file.sock", "x"), link = dir / "link.sock",
                    folder = dir / "folder.sock";
  ASSERT_EQ(symlink(socket.c_str(), link.c_str()), 0);
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  for (const auto& path : {file, link, folder}) {
    EXPECT_EQ(start_at(path), nullptr);
    EXPECT_EQ(
        why, "announcements are not accepted at " + path + ": a file of this name is not a socket");
    EXPECT_EQ(access(path.c_str(), F_OK), 0);
  }
  const std::string nowhere = dir / "no/such.sock", tall = dir / std::string(120, 'x');
  EXPECT_EQ(start_at(nowhere), nullptr);
  EXPECT_EQ(why, "announcements are not accepted at " + nowhere + ": No such file or directory");
  EXPECT_EQ(start_at(tall), nullptr);
  EXPECT_EQ(why, "announcements are not accepted at " + tall +
                     ": the name is too long for a socket: it may have 107 bytes");
}

TEST_F(Announced, AnotherUsersSocketStays) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make another user's socket";
  const std::string path = dir / "squatted.sock";
  auto squatter = start_at(path);
  ASSERT_NE(squatter, nullptr);
  ASSERT_EQ(chown(path.c_str(), 65'534, 65'534), 0);
  EXPECT_EQ(start_at(path), nullptr);
  EXPECT_EQ(why, "announcements are not accepted at " + path +
                     ": a socket of another user (uid 65534) has this name");
  EXPECT_TRUE(AnnounceClient(path).is_connected());
}

TEST_F(Announced, AnotherUserIsTurnedAway) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  // The modes of file and directory would allow the connection.
  ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(socket.c_str(), 0666), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setgroups(0, nullptr) != 0 || setgid(65'534) != 0 || setuid(65'534) != 0) _exit(2);
    const AnnounceClient other(socket);
    _exit(other.is_connected() && other.hear().empty() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  client();
}

}  // namespace
}  // namespace cube::prefetch::testing
