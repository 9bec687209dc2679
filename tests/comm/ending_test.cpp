#include "comm/ending.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace tessera::comm {
namespace {

std::string thrown_by(Ending& ending) {
  try {
    ending.check();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Ending, AWordSaysToGoOnOrWhyNot) {
  EXPECT_FALSE(error_of(word_of(nullptr)));
  for (const std::string text : {"no memory", ""}) {
    const Error error(ErrorCode::cancelled, text);
    const auto said = error_of(word_of(&error));
    ASSERT_TRUE(said);
    EXPECT_EQ(said->code(), ErrorCode::cancelled);
    EXPECT_EQ(said->what(), text);
  }
}

TEST(Ending, WhatIsHeardEndsThisRankWhichSaysNothingThen) {
  Ending ending;
  EXPECT_EQ(thrown_by(ending), "");
  ending.hear({ErrorCode::memory, "of rank 2"});
  ending.hear({ErrorCode::memory, "of rank 1"});
  EXPECT_EQ(thrown_by(ending), "of rank 2") << "the first that came";
  EXPECT_FALSE(ending.fail({ErrorCode::memory, "for that"})) << "it follows from the other one";
  EXPECT_FALSE(ending.own());
  EXPECT_EQ(thrown_by(ending), "of rank 2");
}

TEST(Ending, ARankThatFailsByItselfSaysSoWhateverIsOnTheWay) {
  Ending ending;
  ending.hear({ErrorCode::memory, "of rank 2"});
  EXPECT_TRUE(ending.fail({ErrorCode::model, "its own"})) << "nothing has noticed the other one";
  EXPECT_FALSE(ending.fail({ErrorCode::model, "another"}));
  EXPECT_EQ(thrown_by(ending), "its own");
  ASSERT_TRUE(ending.own());
  EXPECT_EQ(ending.own()->code(), ErrorCode::model);
}

TEST(Ending, OneOfManyThreadsIsTheOneThatFails) {
  Ending ending;
  std::atomic<int> first = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        if (ending.fail({ErrorCode::memory, "no memory"})) ++first;
        EXPECT_EQ(thrown_by(ending), "no memory");
      });
  }
  EXPECT_EQ(first, 1);
}

}  // namespace
}  // namespace tessera::comm
