#include "server/logprobs.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

Json token(const std::string& text, const std::string& bytes, double logprob = -1) {
  Json made{{"text", text}, {"logprob", logprob}, {"bytes", Json::array()}, {"top", Json::array()}};
  for (const char c : bytes) made["bytes"].push_back(static_cast<unsigned char>(c));
  return made;
}

// "a\u20acb", with a second character of two tokens, and an end of text.
Json euro() {
  const std::string unknown = "\xef\xbf\xbd";
  Json tokens = {token("a", "a"), token(unknown, "\xe2\x82"), token(unknown, "\xac"),
                 token("b", "b"), token("<|end|>", "")};
  tokens[1]["top"] = {token(unknown, "\xe2\x82", -1), token(unknown, "\xe2\x83", -2)};
  return {{"text",
           "a\u20ac"
           "b"},
          {"finish", "end"},
          {"logprobs", tokens}};
}

TEST(Logprobs, BytesOfAllTokensAreTheAnswer) {
  const Json content = logprobs_of(euro(), true)["content"];
  std::string answer;
  for (const Json& token : content)
    for (const Json& byte : token["bytes"]) answer += static_cast<char>(byte.get<int>());
  EXPECT_EQ(answer, euro()["text"]);
  EXPECT_EQ(content[1]["token"], "\\xe2\\x82");
  EXPECT_EQ(content[1]["bytes"], Json::parse("[226, 130]"));
  EXPECT_EQ(content[1]["top_logprobs"][1]["bytes"], Json::parse("[226, 131]"));
  EXPECT_EQ(content[4]["token"], "<|end|>");
}

TEST(Logprobs, PartsOfCharactersHaveNamesOfTheirOwn) {
  const Json made = logprobs_of(euro(), false);
  EXPECT_EQ(made["tokens"],
            Json::parse(R"(["a", "bytes:\\xe2\\x82", "bytes:\\xac", "b", "<|end|>"])"));
  EXPECT_EQ(made["top_logprobs"][1].size(), 2U) << "two with the same text";
  EXPECT_EQ(made["text_offset"], Json::parse("[0, 1, 1, 2, 3]"));
}

TEST(Logprobs, EndAtAStopText) {
  Json cut = euro();
  cut["finish"] = "stop";
  cut["text"] = "a";
  EXPECT_EQ(logprobs_of(cut, false)["tokens"], Json::parse(R"(["a"])"));
  cut["text"] = "";
  EXPECT_EQ(logprobs_of(cut, true)["content"], Json::array());
}

TEST(Logprobs, AreNullWhereNobodyAsks) {
  EXPECT_TRUE(logprobs_of({{"text", "a"}, {"finish", "end"}}, true).is_null());
}

}  // namespace
}  // namespace tessera::server
