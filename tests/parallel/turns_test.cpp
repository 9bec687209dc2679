#include "parallel/turns.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

TEST(Turns, OnePieceWorksUntilItHandsOver) {
  Turns turns;
  for (int round = 0; round < 20; ++round) {
    std::string order;  // no lock: halves never run at the same time
    turns.run([&](int piece) {
      for (int i = 0; i < 3; ++i) {
        order += piece == 0 ? 'a' : 'b';
        turns.hand_over();
      }
    });
    EXPECT_EQ(order, "ababab");
  }
}

TEST(Turns, APieceThatEndsLeavesTheOtherAlone) {
  for (int shorter : {0, 1}) {
    Turns turns;
    int calls = 0;
    turns.run([&](int piece) {
      for (int i = 0; i < (piece == shorter ? 1 : 5); ++i) {
        ++calls;
        turns.hand_over();
      }
    });
    EXPECT_EQ(calls, 6);
  }
}

TEST(Turns, NothingHappensWithoutPieces) {
  Turns turns;
  turns.hand_over();
}

TEST(Turns, AnErrorEndsTheOtherPiece) {
  Turns turns;
  for (int culprit : {0, 1})
    for (int at : {0, 2}) {
      int others = 0;
      try {
        turns.run([&](int piece) {
          for (int i = 0;; ++i) {
            if (piece == culprit && i == at) throw Error(ErrorCode::cancelled, "enough");
            if (piece != culprit) ++others;
            turns.hand_over();
          }
        });
        ADD_FAILURE() << "the error was lost";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::cancelled);
      }
      EXPECT_EQ(others, at + culprit) << culprit << ' ' << at;
    }
  int ended = 0;
  turns.run([&](int) { ++ended; });
  EXPECT_EQ(ended, 2) << "the failure of an earlier run is over";
}

TEST(Turns, BothPiecesSeeTheScopeOfTheCaller) {
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  Turns turns;
  turns.run([&](int piece) { tensor::current_scope().meter->add("op", 1 + piece, 0); });
  EXPECT_EQ(scope.meter->total().flops, 3);
}

}  // namespace
}  // namespace tessera::parallel
