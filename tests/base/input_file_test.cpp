#include "base/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tessera::base {
namespace {

namespace fs = std::filesystem;

struct Scratch {
  fs::path path = fs::temp_directory_path() / ("tessera-input-" + std::to_string(getpid()));
  explicit Scratch(const std::string& text) { std::ofstream(path) << text; }
  ~Scratch() { fs::remove(path); }
};

std::string refusal(const std::function<void()>& f, ErrorCode code = ErrorCode::model) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code);
    return e.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(InputFile, GivesTheBytes) {
  const Scratch scratch("0123456789");
  const InputFile file(scratch.path);
  EXPECT_EQ(file.size(), 10);
  char part[4] = {};
  file.read(3, part, 4);
  EXPECT_EQ(std::string(part, 4), "3456");
  file.read(10, part, 0);
  EXPECT_EQ(file.identity(), InputFile(scratch.path).identity());
  EXPECT_EQ(read_file(scratch.path, 10), "0123456789");
  EXPECT_NE(refusal([&] { read_file(scratch.path, 9); }).find("at most 9"), std::string::npos);
  std::ofstream(scratch.path, std::ios::trunc).close();
  EXPECT_EQ(read_file(scratch.path, 0), "");
}

// With a mapping the first of these was a bus error.
TEST(InputFile, AFileThatChangesIsAnError) {
  const Scratch scratch(std::string(100000, 'x'));
  char byte = 0;
  const InputFile shrunk(scratch.path);
  fs::resize_file(scratch.path, 5);
  EXPECT_NE(refusal([&] { shrunk.read(99999, &byte, 1); }).find("was changed while"),
            std::string::npos);
  EXPECT_THROW(shrunk.read(0, &byte, 1), Error) << "the rest is not what it was either";
  const InputFile same_size(scratch.path);
  std::ofstream(scratch.path) << "other";
  fs::last_write_time(scratch.path, fs::last_write_time(scratch.path) + std::chrono::seconds(2));
  EXPECT_THROW(same_size.read(0, &byte, 1), Error);
  const InputFile replaced(scratch.path);
  fs::remove(scratch.path);
  std::ofstream(scratch.path) << "a new file";
  replaced.read(0, &byte, 1);
  EXPECT_EQ(byte, 'o') << "who renames a new file over the old one disturbs nobody";
}

TEST(InputFile, IsMappedOnceAndNotWhenItHasChanged) {
  const Scratch scratch("0123456789");
  const InputFile file(scratch.path);
  const std::byte* const all = file.map();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(all), 10), "0123456789");
  EXPECT_EQ(file.map(), all);
  std::ofstream(scratch.path) << "other, and longer";
  EXPECT_NE(refusal([&] { file.map(); }).find("was changed"), std::string::npos);
  const Scratch empty("");
  EXPECT_NE(refusal([&] { InputFile(empty.path).map(); }).find("cannot map"), std::string::npos);
}

TEST(InputFile, RefusesWhatIsNoRegularFileAtOnce) {
  EXPECT_NE(refusal([] { InputFile("/nowhere"); }).find("No such file"), std::string::npos);
  EXPECT_NE(refusal([] { InputFile("/"); }).find("a folder"), std::string::npos);
  EXPECT_NE(refusal([] { InputFile("/dev/zero"); }).find("a device"), std::string::npos);
  const std::string pipe = fs::temp_directory_path() / ("tessera-pipe-" + std::to_string(getpid()));
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(refusal([&] { InputFile(pipe, ErrorCode::usage); }, ErrorCode::usage).find("a pipe"),
            std::string::npos);
  fs::remove(pipe);
}

}  // namespace
}  // namespace tessera::base
