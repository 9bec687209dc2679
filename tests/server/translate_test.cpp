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
          R"({"prompts": ["a", "b"], "max_tokens": 5, "n": 2, "top_p": 0.5, "stop": ["x"], "threshold": 0.5})"));
  EXPECT_EQ(refused(R"({"prompt": "a", "best_of": 2})", translate_completion), "best_of");
  EXPECT_EQ(refused(R"({"prompt": "a", "logprobs": 3, "stream": true})", translate_completion),
            "logprobs");
  EXPECT_EQ(refused(R"({"prompt": "a", "echo": true})", translate_completion), "echo");
  EXPECT_EQ(refused(R"({"model": "m"})", translate_completion), "prompt");
  EXPECT_EQ(refused(R"({"prompt": "a", "messages": []})", translate_completion), "messages");
  EXPECT_EQ(refused(R"({"prompt": "a", "best_of": 2, "n": 2})", translate_completion),
            "not refused");
}

TEST(Translate, AChat) {
  const Translated to = translate_chat(Json::parse(
      R"({"model": "m", "messages": [{"role": "system", "content": "be"},
          {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
          "max_completion_tokens": 7, "max_tokens": 3})"));
  EXPECT_EQ(to.request, Json::parse(R"({"messages": [{"role": "system", "content": "be"},
                                        {"role": "user", "content": "ab"}], "max_tokens": 7})"));
  EXPECT_EQ(refused(R"({"messages": "x"})", translate_chat), "messages");
  const Json thinks = translate_chat(Json::parse(R"({"messages": [],
      "chat_template_kwargs": {"enable_thinking": true}})"))
                          .request;
  EXPECT_EQ(thinks["enable_thinking"], true);
  EXPECT_EQ(refused(R"({"messages": [], "chat_template_kwargs": {"think": 1}})", translate_chat),
            "chat_template_kwargs.think");
  EXPECT_EQ(refused(R"({"messages": [], "tools": [{}]})", translate_chat), "tools[0].function");
  EXPECT_EQ(refused(R"({"messages": [], "top_logprobs": 2})", translate_chat), "top_logprobs");
  EXPECT_EQ(refused(R"({"messages": [], "logprobs": true, "top_logprobs": 21})", translate_chat),
            "top_logprobs");
  const Json asked =
      translate_chat(Json::parse(R"({"messages": [], "logprobs": true, "top_logprobs": 2})"))
          .request;
  EXPECT_EQ(asked["logprobs"], 2);
}

TEST(Translate, SeedsOfImages) {
  const auto made = [](const char* body) {
    static const ModelFacts facts;
    const auto find = [](const std::string&) -> const ModelFacts& { return facts; };
    return translate_images(Json::parse(body), find).request;
  };
  EXPECT_EQ(made(R"({"prompt": "x", "n": 2, "seed": 5, "seeds": null})"),
            Json::parse(R"({"prompt": "x", "count": 2, "seed": 5})"));
  EXPECT_EQ(
      made(R"({"prompt": "x", "n": 2, "seeds": [7, 7], "size": "8x16", "frames": 9})"),
      Json::parse(
          R"({"prompt": "x", "count": 2, "width": 8, "height": 16, "seeds": [7, 7], "frames": 9})"));
  EXPECT_EQ(made(R"({"prompt": "x", "n": 3})")["seeds"].size(), 3U);
}

// As sent back by OpenAI's client, with the results of calls.
TEST(Translate, AChatWithTools) {
  const std::string said = R"({"messages": [{"role": "user", "content": "x", "name": "u"},
      {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
          {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "4"}]}],
      "tools": [{"type": "function", "function": {"name": "f"}}])";
  const Json request = translate_chat(Json::parse(said + "}")).request;
  EXPECT_EQ(request["messages"], Json::parse(R"([{"role": "user", "content": "x"},
      {"role": "assistant", "content": null, "tool_calls": [
          {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "content": "4", "tool_call_id": "c"}])"));
  EXPECT_EQ(request["tools"].size(), 1U);
  for (const auto& [choice, shown] : {std::pair{"\"auto\"", true}, {"\"none\"", false}}) {
    const Json body = Json::parse(said + ", \"tool_choice\": " + choice + "}");
    EXPECT_EQ(translate_chat(body).request.contains("tools"), shown) << choice;
  }
  for (const char* choice :
       {"\"required\"", "3", R"({"type": "function", "function": {"name": "f"}})"})
    EXPECT_EQ(refused((said + ", \"tool_choice\": " + choice + "}").c_str(), translate_chat),
              "tool_choice");
  EXPECT_EQ(refused((said + ", \"parallel_tool_calls\": false}").c_str(), translate_chat),
            "parallel_tool_calls");
  EXPECT_EQ(refused(R"({"messages": [], "tool_choice": "auto"})", translate_chat), "not refused");
}

}  // namespace
}  // namespace tessera::server
