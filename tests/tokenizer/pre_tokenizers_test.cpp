#include <gtest/gtest.h>

#include "tessera/error.h"
#include "tokenizer/pipeline.h"

namespace tessera::tokenizer {
namespace {

std::vector<std::string> cut(const char* json, const char* text) {
  std::vector<std::string> pieces;
  TextAllowance allowance(std::string_view(text).size());
  parse_pre_tokenizer(base::parse_json(json, "t"), "t")(text, pieces, allowance);
  return pieces;
}
using Pieces = std::vector<std::string>;

TEST(PreTokenizers, Cut) {
  EXPECT_EQ(cut(R"({"type":"BertPreTokenizer"})", "a, b"), (Pieces{"a", ",", "b"}));
  EXPECT_EQ(cut(R"({"type":"ByteLevel","add_prefix_space":false})", "a b"), (Pieces{"a",
                                                                                    "\xc4\xa0"
                                                                                    "b"}));
  EXPECT_EQ(cut(R"({"type":"Metaspace"})", "a b"), (Pieces{"\xe2\x96\x81"
                                                           "a",
                                                           "\xe2\x96\x81"
                                                           "b"}));
  EXPECT_EQ(cut(R"({"type":"Split","pattern":{"String":"-"},"behavior":"MergedWithNext"})", "a-b"),
            (Pieces{"a", "-b"}));
  EXPECT_EQ(
      cut(R"({"type":"Split","pattern":{"String":"-"},"behavior":"MergedWithPrevious"})", "a-b"),
      (Pieces{"a-", "b"}));
  EXPECT_THROW(cut(R"({"type":"Magic"})", ""), Error);
}

}  // namespace
}  // namespace tessera::tokenizer
