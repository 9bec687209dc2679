#include "tessera/step_cache.h"

#include <gtest/gtest.h>

#include <limits>

#include "tessera/error.h"

namespace tessera {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_step_cache(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage) << text;
    return error.what();
  }
  ADD_FAILURE() << text << " is read";
  return "";
}

TEST(StepCache, ReadsRulesAndDefaults) {
  EXPECT_EQ(parse_step_cache("fbcache").threshold, 0.05);
  EXPECT_EQ(parse_step_cache("dbcache").threshold, 0.08);
  EXPECT_EQ(parse_step_cache("fbcache,threshold=0").threshold, 0);
  const StepCache taylor = parse_step_cache("taylorseer,order=2,interval=4,before=3,after=18");
  EXPECT_EQ(taylor.order, 2);
  EXPECT_EQ(taylor.after, 18);
  EXPECT_FALSE(taylor.lite);
  const StepCache dual = parse_step_cache("dbcache,Fn=2,Bn=1,mask=1101,policy=static,taylor=1");
  EXPECT_EQ(dual.mask, (std::vector<bool>{true, true, false, true}));
  EXPECT_TRUE(dual.mask_decides);
  EXPECT_EQ(parse_step_cache("magcache,ratios=flux").ratios.size(), 28u);
  EXPECT_EQ(parse_step_cache("magcache,ratios=1+1.5+-2+1e+1").ratios,
            (std::vector<double>{1, 1.5, -2, 10}));
  EXPECT_EQ(parse_step_cache("teacache,coefficients=flux").coefficients.size(), 5u);
}

TEST(StepCache, BranchesDecideTogetherOrApart) {
  EXPECT_FALSE(parse_step_cache("fbcache").apart);
  EXPECT_FALSE(parse_step_cache("drift,branches=together").apart);
  for (const std::string rule : {"fbcache", "dbcache", "taylorseer", "magcache,ratios=flux",
                                 "teacache,coefficients=flux", "drift"}) {
    const StepCache cache = parse_step_cache(rule + ",branches=apart");
    EXPECT_TRUE(cache.apart) << rule;
    EXPECT_EQ(parse_step_cache(to_string(cache)), cache) << rule;
  }
  EXPECT_NE(refusal("fbcache,branches=both").find("together or apart"), std::string::npos);
}

TEST(StepCache, WritesItsNumbers) {
  for (const char* text : {"fbcache,threshold=0.1", "taylorseer,order=1,interval=3,before=4,lite=1",
                           "dbcache,threshold=0.08,Fn=2,mask=1101,policy=static",
                           "magcache,ratios=flux", "teacache,coefficients=1+2", "drift"}) {
    const StepCache cache = parse_step_cache(text);
    EXPECT_EQ(parse_step_cache(to_string(cache)), cache) << to_string(cache);
  }
}

TEST(StepCache, RefusesByName) {
  EXPECT_NE(refusal("").find("fbcache, dbcache"), std::string::npos);
  EXPECT_NE(refusal("fbcach").find("'fbcach'"), std::string::npos);
  EXPECT_NE(refusal("fbcache,treshold=1").find("known are threshold"), std::string::npos);
  EXPECT_NE(refusal("fbcache,Fn=1").find("Fn"), std::string::npos);
  EXPECT_NE(refusal("fbcache,threshold").find("no value"), std::string::npos);
  EXPECT_NE(refusal("fbcache,threshold=1,threshold=2").find("twice"), std::string::npos);
  for (const char* text : {"fbcache,",
                           "fbcache,threshold=",
                           "fbcache,threshold=nan",
                           "fbcache,threshold=-1",
                           "fbcache,threshold=inf",
                           "fbcache,threshold=0.1x",
                           "fbcache,threshold=1e9",
                           "dbcache,Fn=0",
                           "dbcache,Bn=-1",
                           "dbcache,warmup=-1",
                           "dbcache,warmup_interval=0",
                           "dbcache,mask=10a",
                           "dbcache,policy=static",
                           "dbcache,policy=often",
                           "dbcache,Fn=1.5",
                           "taylorseer,order=5",
                           "taylorseer,interval=0",
                           "taylorseer,before=0",
                           "taylorseer,lite=2",
                           "magcache",
                           "magcache,ratios=",
                           "magcache,ratios=1+",
                           "magcache,ratios=1++2",
                           "magcache,ratios=flux,max_skip=-1",
                           "magcache,ratios=flux,retention=2",
                           "teacache",
                           "teacache,coefficients=nan",
                           "teacache,coefficients=sd3",
                           "fbcache,=1"})
    EXPECT_FALSE(refusal(text).empty()) << text;
}

TEST(StepCache, ChecksValuesOfPrograms) {
  StepCache cache{.threshold = std::numeric_limits<double>::quiet_NaN()};
  EXPECT_THROW(check_values(cache), Error);
  cache.threshold = 0.1;
  check_values(cache);
  cache.rule = static_cast<StepCacheRule>(17);
  EXPECT_THROW(check_values(cache), Error);
}

}  // namespace
}  // namespace tessera
