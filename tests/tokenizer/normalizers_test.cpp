#include <gtest/gtest.h>

#include "tessera/error.h"
#include "tokenizer/pipeline.h"

namespace tessera::tokenizer {
namespace {

TEST(Normalizers, RunInOrder) {
  const auto n = parse_normalizer(base::parse_json(R"({"type":"Sequence","normalizers":[
      {"type":"Lowercase"},{"type":"Replace","pattern":{"Regex":" +"},"content":"_"},
      {"type":"Replace","pattern":{"String":"a"},"content":"bb"},
      {"type":"Strip","strip_left":true,"strip_right":false}]})",
                                                   "t"),
                                  "t");
  EXPECT_EQ(n("\tA  b\t"), "bb_b\t");
}

TEST(Normalizers, BertCleans) {
  const auto n = parse_normalizer({{"type", "BertNormalizer"}}, "t");
  EXPECT_EQ(n("Caf\xc3\xa9\xe2\x80\x8b\xe7\x8c\xab"), "cafe \xe7\x8c\xab ");
}

TEST(Normalizers, RefuseOthers) {
  EXPECT_THROW(parse_normalizer({{"type", "Magic"}}, "t"), Error);
  EXPECT_THROW(parse_normalizer(base::Json(3), "t"), Error);
}

TEST(Normalizers, RulesThatMultiplyATextHaveAnEnd) {
  base::Json steps = base::Json::array();
  for (int i = 0; i < 12; ++i)
    steps.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100, 'a')}});
  const Normalizer grows = parse_normalizer({{"type", "Sequence"}, {"normalizers", steps}}, "here");
  EXPECT_THROW(grows("a"), Error);
  EXPECT_THROW(
      parse_normalizer({{"type", "Sequence"}, {"normalizers", base::Json(1000, {{"type", "NFC"}})}},
                       "here"),
      Error);
}

}  // namespace
}  // namespace tessera::tokenizer
