#include "nn/segments.h"

#include <gtest/gtest.h>

namespace tessera::nn {
namespace {

TEST(Segments, SplitCoversARangeWithoutOverlap) {
  for (int n : {1, 2, 3, 5, 11}) {
    int64_t at = 7;
    for (int i = 0; i < n; ++i) {
      const Range part = split({7, 17}, n, i);
      EXPECT_EQ(part.begin, at);
      at = part.end;
    }
    EXPECT_EQ(at, 17);
  }
}

TEST(Segments, RowsFollowThePackedOrder) {
  const Segments segments{{2, {0, 3}}, {5, {4, 4}}, {0, {8, 10}}};
  EXPECT_EQ(token_count(segments), 5);
  EXPECT_EQ(sequences_of(segments), (std::vector<int32_t>{2, 2, 2, 0, 0}));
}

}  // namespace
}  // namespace tessera::nn
