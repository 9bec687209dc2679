// Every field of every form with values of every other kind: each is refused, and named.
#include <gtest/gtest.h>

#include "server/openai.h"

namespace tessera::server {
namespace {

// Kinds of values; a field accepts at most two.
enum Kinds : unsigned {
  text = 1,
  flag = 2,
  whole = 4,
  number = 8,
  texts = 16,
  objects = 32,
  wide = 64,
  lists = 128
};

struct Value {
  const char* json;
  unsigned of;  // kinds of fields with this value as valid
};
const Value kValues[] = {{"true", flag},
                         {"0.5", number},
                         {"-1", 0},
                         {"1e308", 0},
                         {"18446744073709551616", 0},
                         {"9223372036854775808", wide},
                         {"-9223372036854775808", 0},
                         {"-0.5", 0},
                         {"{}", objects},
                         {"{\"a\": 1}", 0},
                         {"[]", lists},
                         {"[[]]", 0},
                         {"[null]", 0},
                         {"[{}]", 0},
                         {"[1.5]", 0},
                         {"[true]", 0},
                         {"[[[\"a\"]]]", 0},
                         {"\"a\\u0000b\"", 0}};

struct Field {
  const char* name;
  unsigned kinds;
  const char* also = "";  // another required field
};

using Translate = Translated (*)(const Json&);
Translated images(const Json& body) {
  static const ModelFacts facts = [] {
    ModelFacts made;
    made.name = "m";
    return made;
  }();
  return translate_images(body, [](const std::string&) -> const ModelFacts& { return facts; });
}

// The field in the error; "": accepted. A refusal has status 400 and a sentence.
std::string refused(const Json& body, Translate translate, Kind kind) {
  Translated asked;
  try {
    asked = translate(body);
    ModelFacts facts;
    facts.kind = kind;
    read_request(asked.request, facts, {});
    return "";
  } catch (const Refusal& refusal) {
    const Refusal told = in_form(refusal, asked.names);
    EXPECT_EQ(told.status(), 400) << text_of(body);
    EXPECT_GT(std::string(told.what()).size(), 10U) << text_of(body);
    return told.param();
  }
}

void try_all(const std::string& base, const std::vector<Field>& fields, Translate translate,
             Kind kind) {
  ASSERT_EQ(refused(Json::parse("{" + base + "}"), translate, kind), "");
  for (const Field& field : fields)
    for (const Value& value : kValues) {
      Json body = Json::parse("{" + base + field.also + "}");
      body[field.name] = Json::parse(value.json);
      const std::string named = refused(body, translate, kind);
      if (value.of & field.kinds) continue;
      const std::string inside = named.substr(0, named.find_first_of("[."));
      EXPECT_EQ(inside, field.name) << text_of(body) << ": " << named;
    }
}

const std::vector<Field> kOfTexts{{"model", text},
                                  {"stream", flag},
                                  {"stream_options", objects, ", \"stream\": true"},
                                  {"temperature", number},
                                  {"stop", text | texts | lists},
                                  {"seed", wide},
                                  {"n", whole, ", \"temperature\": 1"},
                                  {"top_p", number},
                                  {"top_k", whole},
                                  {"frequency_penalty", 0},
                                  {"presence_penalty", 0},
                                  {"logit_bias", objects},
                                  {"user", text},
                                  {"block", whole},
                                  {"threshold", number},
                                  {"decode", text},
                                  {"select", text},
                                  {"cache", text},
                                  {"raw", flag},
                                  {"repetition_penalty", number}};

TEST(HostileFields, OfCompletions) {
  std::vector<Field> fields = kOfTexts;
  for (const Field& more : {Field{"prompt", text | texts},
                            {"max_tokens", whole},
                            {"echo", 0},
                            {"best_of", 0},
                            {"suffix", 0},
                            {"logprobs", whole}})
    fields.push_back(more);
  try_all(R"("prompt": "x")", fields, translate_completion, Kind::text);
}

TEST(HostileFields, OfChats) {
  std::vector<Field> fields = kOfTexts;
  for (const Field& more : {Field{"messages", 0},
                            {"max_tokens", whole},
                            {"max_completion_tokens", whole},
                            {"max_tokens", whole, ", \"max_completion_tokens\": 3"},
                            {"logprobs", flag},
                            {"top_logprobs", whole, ", \"logprobs\": true"},
                            {"response_format", 0},
                            {"store", 0},
                            {"tools", lists},
                            {"tool_choice", 0},
                            {"parallel_tool_calls", flag},
                            {"functions", lists},
                            {"function_call", 0},
                            {"modalities", lists},
                            {"metadata", objects},
                            {"moderation", objects},
                            {"prompt_cache_options", objects},
                            {"web_search_options", 0},
                            {"audio", 0},
                            {"prediction", 0},
                            {"service_tier", 0},
                            {"safety_identifier", text},
                            {"unheard", 0}})
    fields.push_back(more);
  try_all(R"("messages": [{"role": "user", "content": "x"}])", fields, translate_chat, Kind::text);
}

TEST(HostileFields, OfImages) {
  try_all(R"("prompt": "x")", {{"model", text},
                               {"prompt", text},
                               {"n", whole},
                               {"size", text},
                               {"response_format", text},
                               {"steps", whole},
                               {"guidance", number},
                               {"negative_prompt", text},
                               {"scheduler", text},
                               {"seed", wide},
                               {"noise", text},
                               {"quality", 0},
                               {"output_format", 0},
                               {"background", 0},
                               {"moderation", 0},
                               {"user", text},
                               {"seeds", lists},
                               {"width", whole},
                               {"height", whole},
                               {"stream", 0},
                               {"partial_images", 0},
                               {"svg", 0},
                               {"unheard", 0},
                               {"style", 0}},
          images, Kind::image);
  for (const char* size : {"", "x", "0x0", "8x", "x8", "8x8x8", "-8x8", "8 x 8", "1e3x8", "70000x8",
                           "99999999999999999999x8"})
    EXPECT_EQ(refused({{"prompt", "x"}, {"size", size}}, images, Kind::image), "size") << size;
}

// A message's field is named by its path.
TEST(HostileFields, OfMessages) {
  for (const auto& [message, named] :
       {std::pair{R"("x")", "messages[1]"},
        {"null", "messages[1]"},
        {"{}", "messages[1]"},
        {"[]", "messages[1]"},
        {R"({"role": "user"})", "messages[1]"},
        {R"({"content": "x"})", "messages[1]"},
        {R"({"role": "user", "content": null})", "messages[1]"},
        {R"({"role": "", "content": "x"})", "messages[1]"},
        {R"({"role": "wizard", "content": "x"})", "messages[1].role"},
        {R"({"role": "tool", "content": "x"})", "messages[1].tool_call_id"},
        {R"({"role": "tool", "tool_call_id": 3, "content": "x"})", "messages[1].tool_call_id"},
        {R"({"role": "tool", "tool_call_id": "c"})", "messages[1]"},
        {R"({"role": "tool", "tool_call_id": "c", "content": {}})", "messages[1].content"},
        {R"({"role": "user", "tool_call_id": "c", "content": "x"})", "messages[1].tool_call_id"},
        {R"({"role": "assistant", "content": "x", "refusal": "no"})", "messages[1].refusal"},
        {R"({"role": "assistant", "tool_calls": "x"})", "messages[1].tool_calls"},
        {R"({"role": "assistant", "content": 3, "tool_calls": []})", "messages[1].content"},
        {R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "["}}]})",
         "messages[1].tool_calls[0].function.arguments"},
        {R"({"role": "assistant", "content": "x", "function_call": {}})",
         "messages[1].function_call"},
        {R"({"role": "USER", "content": "x"})", "messages[1].role"},
        {R"({"role": 3, "content": "x"})", "messages[1].role"},
        {R"({"role": ["user"], "content": "x"})", "messages[1].role"},
        {R"({"role": "user", "content": 3})", "messages[1].content"},
        {R"({"role": "user", "content": []})", "messages[1].content"},
        {R"({"role": "user", "content": {}})", "messages[1].content"},
        {R"({"role": "user", "content": "x", "name": 3})", "messages[1].name"},
        {R"({"role": "user", "content": "x", "tool_calls": [{}]})", "messages[1].tool_calls"},
        {R"({"role": "user", "content": ["x"]})", "messages[1].content[0]"},
        {R"({"role": "user", "content": [{"type": "text"}]})", "messages[1].content[0]"},
        {R"({"role": "user", "content": [{"type": "text", "text": 3}]})",
         "messages[1].content[0].text"},
        {R"({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})",
         "messages[1].content[0]"},
        {R"({"role": "user", "content": "a\u0000b"})", "messages[1].content"}}) {
    const Json body = Json::parse(
        std::string(R"({"messages": [{"role": "user", "content": "x"}, )") + message + "]}");
    EXPECT_EQ(refused(body, translate_chat, Kind::text), named) << message;
  }
  EXPECT_EQ(refused(Json::parse(R"({"messages": []})"), translate_chat, Kind::text), "messages");
  const Json newer = Json::parse(R"({"messages": [{"role": "developer", "content": "be"}]})");
  EXPECT_EQ(translate_chat(newer).request["messages"][0]["role"], "system");
}

TEST(HostileFields, WhatIsEmpty) {
  for (const char* stop : {R"("")", R"([""])", R"(["a", ""])"})
    EXPECT_EQ(
        refused({{"prompt", "x"}, {"stop", Json::parse(stop)}}, translate_completion, Kind::text),
        "stop");
  EXPECT_EQ(refused({{"prompt", "x"}, {"stop", Json(std::vector<std::string>(17, "a"))}},
                    translate_completion, Kind::text),
            "stop");
  EXPECT_EQ(refused({{"prompt", Json::array()}}, translate_completion, Kind::text), "prompt");
  EXPECT_EQ(refused({{"prompt", {1, 2, 3}}}, translate_completion, Kind::text), "prompt");
  EXPECT_EQ(refused({{"prompt", "x"}, {"stream_options", {{"include_usage", true}}}},
                    translate_completion, Kind::text),
            "stream_options");
  EXPECT_EQ(refused({{"prompt", "x"}, {"stream", true}, {"stream_options", {{"include_usage", 1}}}},
                    translate_completion, Kind::text),
            "stream_options.include_usage");
  for (const char* field : {"decode", "select", "cache"})  // the library refuses unknown words
    EXPECT_NE(refused({{"prompt", "x"}, {field, 3}}, translate_completion, Kind::text), "");
}

}  // namespace
}  // namespace tessera::server
