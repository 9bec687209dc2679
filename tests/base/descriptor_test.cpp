#include "base/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

namespace tessera::base {
namespace {

TEST(AboveStreams, KeepsWhatIsAbove) {
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GT(file, STDERR_FILENO);
  EXPECT_EQ(above_streams(file), file);
  close(file);
  EXPECT_EQ(above_streams(-1), -1);
}

TEST(AboveStreams, MovesWhatTookTheNumberOfAStream) {
  const int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 100);
  close(STDIN_FILENO);
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(file, STDIN_FILENO);
  const int moved = above_streams(file);
  const bool closed = fcntl(STDIN_FILENO, F_GETFD) == -1 && errno == EBADF;
  if (kept >= 0) dup2(kept, STDIN_FILENO);
  if (kept >= 0) close(kept);
  EXPECT_GT(moved, STDERR_FILENO);
  EXPECT_TRUE(closed);
  EXPECT_EQ(fcntl(moved, F_GETFD), FD_CLOEXEC);
  close(moved);
}

TEST(Descriptor, ClosesItsFileOnce) {
  int number = -1;
  {
    Descriptor file(open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = file;
    Descriptor other(std::move(file));
    EXPECT_EQ(file, -1);
    EXPECT_EQ(other, number);
    file = std::move(other);
    EXPECT_EQ(file, number);
    EXPECT_EQ(fcntl(number, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
}

}  // namespace
}  // namespace tessera::base
