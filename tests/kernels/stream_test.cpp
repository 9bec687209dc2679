#include "kernels/wide/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace tessera::kernels::wide {
namespace {

TEST(Stream, PagesAreMeasuredOnce) {
  const int64_t pages = measured_stream_pages();
  EXPECT_TRUE(pages == 1 || pages == 3 || pages == 9) << pages;
  std::jthread([&] { EXPECT_EQ(measured_stream_pages(), pages); });
}

TEST(Stream, WhereMemoryDoesNotSetTheTimePagesAreNotThoseMeasured) {
  constexpr int64_t kLarge = int64_t{1} << 24, kSmall = 1 << 16;
  EXPECT_EQ(stream_pages(1, 1, kLarge), measured_stream_pages());
  EXPECT_EQ(stream_pages(20, 2, kLarge), std::max<int64_t>(measured_stream_pages(), 3));
  EXPECT_EQ(stream_pages(1, 1, kSmall), 3);
  EXPECT_EQ(stream_pages(64, 5, kLarge), 4);
}

}  // namespace
}  // namespace tessera::kernels::wide
