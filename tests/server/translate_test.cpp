#include <gtest/gtest.h>

#include "server/openai.h"

namespace tessera::server {
namespace {

std::string refused(const char* text, Translated (*translate)(const Json&)) {
  try {
    translate(Json::parse(text));
  } catch (const Refusal& refusal) {
    return refusal.param();
  }
  return "not refused";
}

TEST(Translate, ACompletion) {
  const Translated to = translate_completion(Json::parse(
      R"({"model": "m", "prompt": ["a", "b"], "max_tokens": 5, "n": 2, "top_p": 0.5, "logprobs": null, "user": "u", "stream": true,
          "stream_options": {"include_usage": true}, "stop": ["x"], "threshold": 0.5})"));
  EXPECT_EQ(to.model, "m");
  EXPECT_TRUE(to.stream && to.stream_usage);
  EXPECT_EQ(
      to.request,
      Json::parse(
          R"({"prompts": ["a", "b"], "max_tokens": 5, "stop": ["x"], "threshold": 0.5, "n": 2, "top_p": 0.5})"));
  EXPECT_EQ(refused(R"({"prompt": "a", "best_of": 2})", translate_completion), "best_of");
  EXPECT_EQ(refused(R"({"prompt": "a", "logprobs": 3, "stream": true})", translate_completion),
            "logprobs");
  EXPECT_EQ(refused(R"({"prompt": "a", "echo": true})", translate_completion), "echo");
  EXPECT_EQ(refused(R"({"model": "m"})", translate_completion), "prompt");
  EXPECT_EQ(refused(R"({"prompt": "a", "unheard": 1})", translate_completion), "unheard");
}

TEST(Translate, AChat) {
  const Translated to = translate_chat(Json::parse(
      R"({"model": "m", "messages": [{"role": "system", "content": "be"},
          {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
          "max_completion_tokens": 7, "max_tokens": 3})"));
  EXPECT_EQ(to.request,
            Json::parse(R"({"max_tokens": 7, "messages": [{"role": "system", "content": "be"},
                                        {"role": "user", "content": "ab"}]})"));
  EXPECT_EQ(refused(R"({"messages": "x"})", translate_chat), "messages");
  EXPECT_EQ(refused(R"({"messages": [], "tools": [{}]})", translate_chat), "tools");
  EXPECT_EQ(refused(R"({"messages": [], "top_logprobs": 2})", translate_chat), "top_logprobs");
  EXPECT_EQ(refused(R"({"messages": [], "logprobs": true, "top_logprobs": 21})", translate_chat),
            "top_logprobs");
  const Json asked =
      translate_chat(Json::parse(R"({"messages": [], "logprobs": true, "top_logprobs": 2})"))
          .request;
  EXPECT_EQ(asked["logprobs"], 2);
}

}  // namespace
}  // namespace tessera::server
