#include <gtest/gtest.h>

#include "nn/moe/expert_selection.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

TEST(SelectionText, ReadsWhatItWrites) {
  for (const char* text :
       {"vanilla", "topk:4", "des-seq:2", "des-vote:0.4", "des-max:0.25,k=6,weights=A",
        "des-norm4:0.5,groups=none,scope=batch", "des-peak:0.2", "naee:0.2,renormalise",
        "mc:0.4,0.1,0.2", "block:5,8", "des-vote:0.3,weights=B,groups=vanilla",
        "des-max:0.25,scope=batch,votes=score"})
    EXPECT_EQ(to_string(parse_selection(text)), text);
}

TEST(SelectionText, DefaultsAreThePublishedOnes) {
  const SelectionRule rule = parse_selection("mc:0.3");
  EXPECT_EQ(rule.high, 0.1);
  EXPECT_EQ(rule.low, 0);
  EXPECT_FALSE(rule.batch);
}

TEST(SelectionText, NamesWhatDoesNotFitInOneLine) {
  for (const char* text : {"",
                           "des",
                           "des-vote",
                           "des-vote:",
                           "des-vote:x",
                           "des-vote:1.5",
                           "topk:0",
                           "topk:2.5",
                           "topk:3,4",
                           "des-vote:0.4,weights=C",
                           "des-vote:0.4,k=0",
                           "vanilla:1",
                           "mc:0.1,0.2,0.3,0.4",
                           "naee:nan",
                           "des-vote:0.4,size=3",
                           "des-vote:0.4,votes=logit",
                           "des-\n:1",
                           "block:5",
                           "block:5,0",
                           "block:0,8",
                           "block:2.5,8"}) {
    try {
      parse_selection(text);
      ADD_FAILURE() << "accepted " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage) << text;
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(SelectionText, RefusesWhatWouldChangeNothing) {
  const auto said = [](const char* text) {
    try {
      parse_selection(text);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const char* text :
       {"vanilla,k=2", "vanilla,scope=batch", "topk:4,weights=A", "topk:4,k=2",
        "topk:2,scope=batch", "naee:0.2,weights=A", "naee:0.2,scope=batch", "naee:0.2,groups=none",
        "block:5,8,scope=batch", "mc:0.2,k=3", "mc:0.2,weights=B", "des-vote:0.4,renormalise",
        "des-seq:2,votes=score", "block:5,8,votes=score", "naee:0.2,votes=score"})
    EXPECT_NE(said(text).find("changes nothing of"), std::string::npos)
        << text << ": " << said(text);
  for (const char* text : {"mc:0.2,scope=batch", "mc:0.2,renormalise", "naee:0.2,renormalise",
                           "des-peak:0.2,k=4,weights=B,groups=none,scope=batch"})
    EXPECT_EQ(said(text), "");
}

}  // namespace
}  // namespace tessera::nn
