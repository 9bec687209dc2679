#include "comm/mpi/fate.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tessera::comm::mpi {
namespace {

const Error kOwn(ErrorCode::model, "weight 'x' is damaged"), kWait(ErrorCode::rank, "a wait ended"),
    kLost(ErrorCode::rank, "rank 2 was lost");

int code_of(const std::exception_ptr& verdict) {
  try {
    std::rethrow_exception(verdict);
  } catch (const EchoError& error) {
    return static_cast<int>(error.code());
  } catch (...) {
    return -1;
  }
}

TEST(Fate, TheFirstFailureStays) {
  Fate fate(0, 3);
  EXPECT_FALSE(fate.failure());
  EXPECT_TRUE(fate.fail(kLost, kLost.code(), 2, true, {}));
  EXPECT_FALSE(fate.fail(kOwn, kOwn.code(), 1, false, {}));
  EXPECT_EQ(fate.failure()->origin, 2);
  EXPECT_EQ(code_of(fate.verdict(nullptr)), 5);
  EXPECT_EQ(code_of(fate.verdict(std::make_exception_ptr(kWait))), 5);
}

TEST(Fate, WhoFailsByItselfKeepsItsCodeAndTheLowestReports) {
  Fate zero(0, 2), one(1, 2);
  zero.fail(kOwn, kOwn.code(), 0, false, {});
  one.fail(kOwn, kOwn.code(), 1, false, {});
  EXPECT_TRUE(one.first_to_fail());
  zero.fail(kWait, kWait.code(), 1, false, {});
  one.fail(kWait, kWait.code(), 0, false, {});
  EXPECT_TRUE(zero.first_to_fail());
  EXPECT_FALSE(one.first_to_fail());
  EXPECT_EQ(code_of(zero.verdict(std::make_exception_ptr(kOwn))), 3);
  EXPECT_EQ(code_of(one.verdict(std::make_exception_ptr(kOwn))), 3);
}

TEST(Fate, WhoWaitsEndsWithTheCodeOfTheCause) {
  Fate fate(0, 2);
  fate.fail(kWait, ErrorCode::model, 1, false, {});
  EXPECT_EQ(code_of(fate.verdict(std::make_exception_ptr(kWait))), 3);
  EXPECT_EQ(code_of(fate.verdict(nullptr)), 3);
}

TEST(Fate, OtherExceptionsPassThroughWhereTheyBegan) {
  Fate fate(1, 2);
  fate.fail(kWait, kWait.code(), 1, false, {});
  EXPECT_THROW(
      std::rethrow_exception(fate.verdict(std::make_exception_ptr(std::out_of_range("index")))),
      std::out_of_range);
}

TEST(Fate, RemembersWhoGotASignalAndThatTheUserWasTold) {
  Fate fate(0, 3);
  EXPECT_TRUE(fate.signalled().empty());
  fate.signalled(2);
  fate.signalled(0);
  fate.signalled(2);
  EXPECT_EQ(fate.signalled(), (std::vector<int>{0, 2}));
  EXPECT_FALSE(fate.reported());
  fate.set_reported();
  EXPECT_TRUE(fate.reported());
}

TEST(Fate, AllAreDoneWhenEachIs) {
  Fate fate(0, 2);
  fate.done(1);
  EXPECT_FALSE(fate.all_done());
  fate.done(0);
  EXPECT_TRUE(fate.all_done());
}

}  // namespace
}  // namespace tessera::comm::mpi
