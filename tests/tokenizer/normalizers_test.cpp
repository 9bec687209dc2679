#include <gtest/gtest.h>

#include "tessera/error.h"
#include "tokenizer/pipeline.h"

namespace tessera::tokenizer {
namespace {

// As for a whole text.
std::string made(const Normalizer& n, const std::string& text) {
  TextAllowance allowance(text.size());
  return n(text, allowance);
}

TEST(Normalizers, RunInOrder) {
  const auto n = parse_normalizer(base::parse_json(R"({"type":"Sequence","normalizers":[
      {"type":"Lowercase"},{"type":"Replace","pattern":{"Regex":" +"},"content":"_"},
      {"type":"Replace","pattern":{"String":"a"},"content":"bb"},
      {"type":"Strip","strip_left":true,"strip_right":false}]})",
                                                   "t"),
                                  "t");
  EXPECT_EQ(made(n, "\tA  b\t"), "bb_b\t");
}

TEST(Normalizers, BertCleans) {
  const auto n = parse_normalizer({{"type", "BertNormalizer"}}, "t");
  EXPECT_EQ(made(n, "Caf\xc3\xa9\xe2\x80\x8b\xe7\x8c\xab"), "cafe \xe7\x8c\xab ");
}

TEST(Normalizers, RefuseOthers) {
  EXPECT_THROW(parse_normalizer({{"type", "Magic"}}, "t"), Error);
  EXPECT_THROW(parse_normalizer(base::Json(3), "t"), Error);
}

TEST(Normalizers, StepsOfSequencesCountTogether) {
  base::Json steps = {{"type", "Lowercase"}};
  for (int i = 0; i < 4; ++i) steps = {{"type", "Sequence"}, {"normalizers", base::Json(4, steps)}};
  EXPECT_THROW(parse_normalizer(steps, "here"), Error);
  const base::Json pattern = {{"Regex", std::string(3000, 'a')}};
  const base::Json replace = {{"type", "Replace"}, {"pattern", pattern}, {"content", ""}};
  EXPECT_NO_THROW(parse_normalizer(replace, "here"));
  EXPECT_THROW(
      parse_normalizer({{"type", "Sequence"}, {"normalizers", base::Json(3, replace)}}, "here"),
      Error);
}

TEST(Normalizers, RulesThatMultiplyATextHaveAnEnd) {
  base::Json steps = base::Json::array();
  for (int i = 0; i < 12; ++i)
    steps.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100, 'a')}});
  const Normalizer grows = parse_normalizer({{"type", "Sequence"}, {"normalizers", steps}}, "here");
  EXPECT_THROW(made(grows, "a"), Error);
  EXPECT_THROW(
      parse_normalizer({{"type", "Sequence"}, {"normalizers", base::Json(1000, {{"type", "NFC"}})}},
                       "here"),
      Error);
}

}  // namespace
}  // namespace tessera::tokenizer
