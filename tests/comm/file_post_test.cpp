#include "comm/file_post.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tessera/error.h"

namespace tessera::comm {
namespace {

base::Descriptor file_of(off_t bytes) {
  base::Descriptor file(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(file, bytes), 0);
  return file;
}

off_t bytes_of(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 ? status.st_size : -1;
}

TEST(FilePost, FilesComeByTheirProcessAndNumber) {
  FilePost here;
  const pid_t child = fork();
  if (child == 0) {
    const FilePost there;
    there.send(here.address(), file_of(100), 1);
    there.send(here.address(), file_of(200), 2);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  here.send(here.address(), file_of(300), 2);
  const base::Descriptor second = here.take(child, 2), own = here.take(getpid(), 2),
                         first = here.take(child, 1);
  EXPECT_EQ(bytes_of(first), 100);
  EXPECT_EQ(bytes_of(second), 200);
  EXPECT_EQ(bytes_of(own), 300);
  EXPECT_EQ(fcntl(first, F_GETFD), FD_CLOEXEC);
}

TEST(FilePost, AFileThatDidNotComeIsAnError) {
  FilePost here;
  EXPECT_THROW(here.take(getpid(), 0), Error);
  here.send(here.address(), file_of(1), 4);
  EXPECT_THROW(here.take(getpid(), 5), Error);
  EXPECT_THROW(here.take(getpid() + 1, 4), Error);
  EXPECT_GE(here.take(getpid(), 4), 0);
  EXPECT_THROW(here.take(getpid(), 4), Error) << "once";
}

TEST(FilePost, FilesOfAnotherUserAreLeftOut) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can send as another user";
  FilePost here;
  const pid_t child = fork();
  if (child == 0) {
    const bool other = setuid(65534) == 0;
    if (other) FilePost().send(here.address(), file_of(100), 1);
    _exit(other ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_THROW(here.take(child, 1), Error);
}

TEST(FilePost, AddressesAreChecked) {
  FilePost::Address gone;
  {
    const FilePost other;
    gone = other.address();
  }
  const FilePost here;
  const base::Descriptor file = file_of(1);
  EXPECT_THROW(here.send(gone, file, 0), Error);
  EXPECT_THROW(here.send({}, file, 0), Error);
  FilePost::Address large;
  large.size = 255;
  EXPECT_THROW(here.send(large, file, 0), Error);
  EXPECT_THROW(here.send(here.address(), -1, 0), Error);
}

// A receiver that never looks fills its queue; the sender does not wait.
TEST(FilePost, AFullPostIsAnError) {
  const FilePost here;
  const base::Descriptor file = file_of(1);
  EXPECT_THROW(
      {
        for (uint32_t i = 0; i < 100000; ++i) here.send(here.address(), file, i);
      },
      Error);
}

}  // namespace
}  // namespace tessera::comm
