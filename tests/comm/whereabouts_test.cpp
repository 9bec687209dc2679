#include "comm/whereabouts.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::comm {
namespace {

TEST(Whereabouts, ProcessesOfAMachineDifferByTheirIds) {
  const Whereabouts here = Whereabouts::here();
  EXPECT_EQ(here.pid, getpid());
  EXPECT_NE(here.machine, 0u);
  const pid_t child = fork();
  if (child == 0) {
    const Whereabouts there = Whereabouts::here();
    _exit(there.machine == here.machine && there.pid == getpid() && there.pid != here.pid ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tessera::comm
