#include "server/log_lines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

namespace tessera::server {
namespace {

std::string all_of(int descriptor) {
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t count; (count = read(descriptor, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<size_t>(count));
  return text;
}

TEST(LogLines, WritesLinesInOrder) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    LogLines log(ends[1]);
    for (int i = 0; i < 100; ++i) log.add(std::to_string(i));
  }
  close(ends[1]);
  std::string expected;
  for (int i = 0; i < 100; ++i) expected += std::to_string(i) + "\n";
  EXPECT_EQ(all_of(ends[0]), expected);
  close(ends[0]);
}

TEST(LogLines, WritesAtOnceWhileTheReaderHasRoom) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  LogLines log(ends[1]);
  log.add("here");
  std::array<char, 8> part{};
  EXPECT_EQ(read(ends[0], part.data(), part.size()), 5);
  for (const int end : ends) close(end);
}

TEST(LogLines, DropsAndCountsLinesWhenNobodyReads) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  constexpr int kLines = 10'000;
  std::string text;
  std::thread reader;
  {
    LogLines log(ends[1]);
    for (int i = 0; i < kLines; ++i) log.add(std::string(1000, 'x'));  // a pipe takes sixty
    reader = std::thread([&] { text = all_of(ends[0]); });
  }
  close(ends[1]);
  reader.join();
  close(ends[0]);
  const size_t whole = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) - 1;
  EXPECT_GE(whole, LogLines::kMostLines);
  EXPECT_NE(text.find(fmt::format("{} lines of the log were dropped", kLines - whole)),
            std::string::npos)
      << text.substr(text.size() - std::min<size_t>(text.size(), 100));
}

TEST(LogLines, EndsWithAReaderThatDoesNotRead) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto begin = std::chrono::steady_clock::now();
  {
    LogLines log(ends[1]);
    for (int i = 0; i < 1000; ++i) log.add(std::string(1000, 'x'));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  for (const int end : ends) close(end);
}

TEST(LogLines, EndsWithAReaderThatIsGone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  {
    LogLines log(ends[1]);
    log.add("nobody reads this");
  }
  close(ends[1]);
}

}  // namespace
}  // namespace tessera::server
