#include "parallel/two_batch_overlap.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

TEST(TwoBatchOverlap, OnePieceWorksUntilItHandsOver) {
  TwoBatchOverlap two_batch_overlap;
  for (int round = 0; round < 20; ++round) {
    std::string order;  // no lock: halves never run at the same time
    two_batch_overlap.run([&](int piece) {
      for (int i = 0; i < 3; ++i) {
        order += piece == 0 ? 'a' : 'b';
        two_batch_overlap.hand_over();
      }
    });
    EXPECT_EQ(order, "ababab");
  }
}

TEST(TwoBatchOverlap, APieceThatEndsLeavesTheOtherAlone) {
  for (int shorter : {0, 1}) {
    TwoBatchOverlap two_batch_overlap;
    int calls = 0;
    two_batch_overlap.run([&](int piece) {
      for (int i = 0; i < (piece == shorter ? 1 : 5); ++i) {
        ++calls;
        two_batch_overlap.hand_over();
      }
    });
    EXPECT_EQ(calls, 6);
  }
}

TEST(TwoBatchOverlap, NothingHappensWithoutPieces) {
  TwoBatchOverlap two_batch_overlap;
  two_batch_overlap.hand_over();
}

TEST(TwoBatchOverlap, AnErrorEndsTheOtherPiece) {
  TwoBatchOverlap two_batch_overlap;
  for (int culprit : {0, 1})
    for (int at : {0, 2}) {
      int others = 0;
      try {
        two_batch_overlap.run([&](int piece) {
          for (int i = 0;; ++i) {
            if (piece == culprit && i == at) throw Error(ErrorCode::cancelled, "enough");
            if (piece != culprit) ++others;
            two_batch_overlap.hand_over();
          }
        });
        ADD_FAILURE() << "the error was lost";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::cancelled);
      }
      EXPECT_EQ(others, at + culprit) << culprit << ' ' << at;
    }
  int ended = 0;
  two_batch_overlap.run([&](int) { ++ended; });
  EXPECT_EQ(ended, 2) << "the failure of an earlier run is over";
}

TEST(TwoBatchOverlap, BothPiecesSeeTheScopeOfTheCaller) {
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  TwoBatchOverlap two_batch_overlap;
  two_batch_overlap.run([&](int piece) { tensor::current_scope().meter->add("op", 1 + piece, 0); });
  EXPECT_EQ(scope.meter->total().flops, 3);
}

}  // namespace
}  // namespace tessera::parallel
