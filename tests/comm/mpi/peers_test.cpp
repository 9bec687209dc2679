#include "comm/mpi/peers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace tessera::comm::mpi {
namespace {

using namespace std::chrono_literals;

struct Child {
  Child() : pid(fork()) {
    if (pid != 0) return;
    for (;;) pause();
  }
  ~Child() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pid_t pid;
};

TEST(Peers, AProcessThatEndsIsSeenUnlessItHadLeft) {
  Child first, second;
  const Whereabouts here = Whereabouts::here();
  const auto now = std::chrono::steady_clock::now();
  Peers peers(0, {here, {first.pid, here.machine}, {second.pid, here.machine}}, now);
  EXPECT_EQ(peers.await_end(1ms), -1);
  kill(first.pid, SIGKILL);
  kill(second.pid, SIGKILL);
  for (int i = 0; i < 500 && !(peers.gone(1) && peers.gone(2)); ++i) peers.await_end(10ms);
  const int earliest = peers.await_end(0ms);
  EXPECT_LE(peers.gone_at(earliest), peers.gone_at(3 - earliest));
  peers.left(earliest);
  EXPECT_EQ(peers.await_end(0ms), 3 - earliest);
}

TEST(Peers, ASilentRankIsNamed) {
  const Whereabouts here = Whereabouts::here();
  const auto now = std::chrono::steady_clock::now();
  Peers peers(1, {{1, here.machine + 1}, here, {2, here.machine + 1}}, now);
  peers.heard(0, 5, 2, now + 3s);
  EXPECT_EQ(peers.progress(0), 5u);
  EXPECT_EQ(peers.waits_for(0, now + 3s), 2);
  EXPECT_EQ(peers.waits_for(0, now + 4s), -1) << "a rank that was stopped may say anything";
  EXPECT_EQ(peers.waits_for(2, now), -1);
  EXPECT_EQ(peers.silent(now + 4s, 10s, true), -1);
  EXPECT_EQ(peers.silent(now + 4s, 2s, true), 2);
  EXPECT_EQ(peers.silent(now + 20s, 2s, false), 2) << "the longest";
  peers.left(2);
  EXPECT_EQ(peers.silent(now + 20s, 2s, false), 0);
}

}  // namespace
}  // namespace tessera::comm::mpi
