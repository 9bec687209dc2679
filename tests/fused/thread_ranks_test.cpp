#include "fused/thread_ranks.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tessera/error.h"

namespace tessera::fused {
namespace {

TEST(ThreadRanks, APutBringsRowsAndTheirWordAndNothingElse) {
  const Layout layout = Layout::fixed(2, 2, 3, 8, {4});
  ThreadRanks ranks(layout);
  for (int r = 0; r < 2; ++r)
    for (int64_t i = 0; i < layout.bytes(); ++i) ASSERT_EQ(ranks.buffer(r)[i], std::byte{0});
  const Task task{TaskKind::dispatch, 1, 1, 0, 3};
  const int64_t counts[] = {1, 3};
  const Transfer transfer = Dispatcher(layout, 0).tile(task, counts, 9);
  std::memset(ranks.buffer(0) + transfer.from, 7, 4 * 8);  // the last row is padding
  ranks.wire(0).put(transfer);
  for (int64_t i = 0; i < layout.bytes(); ++i) {
    const bool row = i >= transfer.at && i < transfer.at + 24;
    const std::byte word{i == transfer.word ? uint8_t{9} : uint8_t{0}};
    ASSERT_EQ(ranks.buffer(1)[i], row ? std::byte{7} : word) << i;
  }
}

TEST(ThreadRanks, AllSeeTheFirstFailure) {
  ThreadRanks ranks(Layout::fixed(2, 1, 1, 8, {1}));
  EXPECT_NO_THROW(ranks.check());
  ranks.fail(std::make_exception_ptr(Error(ErrorCode::rank, "first")));
  ranks.fail(std::make_exception_ptr(Error(ErrorCode::rank, "second")));
  try {
    ranks.check();
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "first");
  }
}

}  // namespace
}  // namespace tessera::fused
