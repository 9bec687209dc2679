#include "tokenizer/formats.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

TEST(Formats, ReadATokenizerJson) {
  const auto json = base::parse_json(R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},
      "merges":["a b"]},"post_processor":{"type":"BertProcessing","sep":["s",5],"cls":["c",4]}})",
                                     "t");
  const TokenizerParts parts = parts_of_json(json, "t");
  EXPECT_EQ(parts.before, std::vector<int32_t>{4});
  EXPECT_EQ(parts.after, std::vector<int32_t>{5});
  EXPECT_EQ(parts.model->size(), 3);
}

TEST(Formats, RefuseMalformedOnes) {
  for (const char* text :
       {"3", "{}", R"({"model":{"type":"X"}})", R"({"model":{"type":"BPE","vocab":{"a":-1}}})",
        R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}})",
        R"({"model":{"type":"Unigram","vocab":[["a"]]}})",
        R"({"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":7}})",
        R"({"model":{"type":"BPE","vocab":{"a":0}},"post_processor":{"type":"X"}})"})
    EXPECT_THROW(parts_of_json(base::parse_json(text, "t"), "t"), Error) << text;
}

}  // namespace
}  // namespace tessera::tokenizer
