#include "tessera/plan.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera {
namespace {

TEST(Plan, WritesWhatItReads) {
  for (const char* text : {"", "cfg=2", "data=2,pipefusion=3,patches=6,warmup=2"})
    EXPECT_EQ(to_string(parse_plan(text)), text);
  EXPECT_EQ(parse_plan("cfg=2,ulysses=3").world(), 6);
}

TEST(Plan, NamesWhatItCannotRead) {
  for (const char* text : {"cfg", "cfg=0", "cfg=-1", "cfg=two", "speed=9", "cfg=2,cfg=2", "cfg=99999999"}) {
    try {
      parse_plan(text);
      FAIL() << text << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plan);
    }
  }
}

TEST(Plan, SaysWhyItCannotRun) {
  EXPECT_TRUE(problems(parse_plan(""), 1).empty());
  EXPECT_EQ(problems(parse_plan("cfg=2"), 1).size(), 2u);
  EXPECT_EQ(problems(parse_plan(""), 2).size(), 1u);
}

}  // namespace
}  // namespace tessera
