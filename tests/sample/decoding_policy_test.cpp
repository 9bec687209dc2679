#include "sample/decoding_policy.h"

#include <gtest/gtest.h>

#include <string>

#include "tessera/error.h"

namespace tessera::sample {
namespace {

TEST(DecodingPolicy, ReadsEveryForm) {
  DecodingPolicy p;
  read_decode("steps:4", p);
  EXPECT_EQ(p.steps, 4);
  read_decode("hierarchy:0.9,0.3", p);
  EXPECT_EQ(p.low, 0.3);
  read_decode("credit:0.8,1,0.5,0.25", p);
  EXPECT_EQ(p.beta, 0.25);
  read_decode("factor:2,upstream", p);
  EXPECT_TRUE(p.commit_last_failing);
  read_decode("edit:0.6,0.4,3", p);
  EXPECT_TRUE(p.edits() && p.threshold == 0.6 && p.editing == 0.4 && p.posts == 3);
  DecodingPolicy quality, speed;
  read_decode("edit:quality", quality);
  read_decode("edit:speed", speed);
  EXPECT_TRUE(quality.threshold == 0.7 && quality.editing == 0.5 && quality.posts == 16);
  EXPECT_TRUE(speed.threshold == 0.5 && speed.editing == 0);
  EXPECT_EQ(parse_cache("vicinity:3,5,2").after, 5);
  EXPECT_EQ(parse_cache("auto").kind, KvCache::automatic);
}

TEST(DecodingPolicy, NamesWhatItDoesNotKnow) {
  DecodingPolicy p;
  for (const char* text : {"",
                           "best",
                           "steps",
                           "steps:0",
                           "steps:2.5",
                           "threshold:x",
                           "threshold:1,2",
                           "hierarchy:0.9",
                           "hierarchy:0.4,0.9",
                           "hierarchy:0.9,0.9",
                           "factor:1,down",
                           "credit:0.1,2,3,4,5",
                           "threshold:nan",
                           "edit",
                           "edit:0.5",
                           "edit:fast",
                           "edit:0.5,0.5,-1",
                           "edit:0.5,0.5,1.5",
                           "edit:quality,3",
                           "edit:0.5,0.5,1001"})
    EXPECT_THROW(read_decode(text, p), Error) << text;
  for (const char* text :
       {"", "all", "vicinity", "vicinity:", "vicinity:1,2", "vicinity:-1,2,3", "dual:3"})
    EXPECT_THROW(parse_cache(text), Error) << text;
}

TEST(DecodingPolicy, RefusesOptionsThatContradict) {
  EXPECT_THROW(check_policy({.cache = {KvCache::dual}}, true), Error);
  EXPECT_THROW(check_policy({.cache = {KvCache::block}}, false), Error);
  EXPECT_THROW(check_policy({.rule = DecodingPolicy::Rule::factor, .steps = 4}, false), Error);
  EXPECT_THROW(check_policy({.steps = 33, .block = 32}, false), Error);
  EXPECT_THROW(check_policy({.block = 0}, false), Error);
  EXPECT_THROW(check_policy({.temperature = 1e-300}, false), Error);
  EXPECT_NO_THROW(check_policy({.temperature = 1e-6}, false));
  EXPECT_THROW(check_policy({.rule = DecodingPolicy::Rule::edit}, false), Error);
  EXPECT_NO_THROW(check_policy({.rule = DecodingPolicy::Rule::edit, .steps = 4}, true));
  EXPECT_NO_THROW(check_policy({.steps = 8, .cache = {KvCache::block}}, true));
}

// A temperature would be refused, so none is advised.
TEST(DecodingPolicy, ACanvasRefusesOtherSamplersFirst) {
  for (const bool by_rank : {true, false}) {
    DecodingPolicy p{.rule = DecodingPolicy::Rule::canvas, .cache = {KvCache::block}};
    EXPECT_NO_THROW(check_policy(p, true));
    if (by_rank) {
      p.top_k = 5;
    } else {
      p.top_p = 0.5;
    }
    try {
      check_policy(p, true);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("are not for canvases"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tessera::sample
