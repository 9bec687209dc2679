#include "tokenizer/text_allowance.h"

#include <gtest/gtest.h>

#include <stop_token>

#include "base/stop.h"
#include "tessera/error.h"
#include "tokenizer/pipeline.h"

namespace tessera::tokenizer {
namespace {

TEST(TextAllowance, CountsWhatStepsMake) {
  TextAllowance allowance(10);
  allowance.charge(1000);
  EXPECT_THROW(allowance.charge(size_t{1} << 21), Error);
  for (int i = 0; i < 1000; ++i) allowance.charge(0);
  EXPECT_THROW(for (;;) allowance.charge(0), Error);  // a step counts even without output
}

TEST(TextAllowance, HearsAStop) {
  TextAllowance allowance(10);
  const TextAllowance::Timed timed(allowance);
  EXPECT_TRUE(timed.goes_on());
  std::stop_source source;
  const base::BindStop bind(source.get_token());
  EXPECT_TRUE(timed.goes_on());
  source.request_stop();
  EXPECT_FALSE(timed.goes_on());
  EXPECT_FALSE(TextAllowance::Timed::match_goes_on(&timed, 1));
  EXPECT_THROW(allowance.charge(1), Error);
}

// A pattern may cost little on each piece but much on the whole.
TEST(TextAllowance, IsOneForAllPiecesOfAText) {
  const base::Json words = {{"type", "Split"}, {"pattern", {{"Regex", " "}}}};
  const base::Json slow = {{"type", "Split"}, {"pattern", {{"Regex", "(a+)+b"}}}};
  const PreTokenizer cut = parse_pre_tokenizer(
      {{"type", "Sequence"}, {"pretokenizers", base::Json::array({words, slow})}}, "test");
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "aaaaaaaaaaaaaaaa ";
  TextAllowance allowance(text.size());
  std::vector<std::string> pieces;
  EXPECT_THROW(cut(text, pieces, allowance), Error);
}

}  // namespace
}  // namespace tessera::tokenizer
