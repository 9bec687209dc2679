#include "server/chat_reader.h"

#include <gtest/gtest.h>

#include "server/refusal.h"

namespace tessera::server {
namespace {

constexpr size_t kMost = 1000;

Json read(const char* messages, const char* tools = nullptr) {
  const Json said = Json::parse(messages), known = Json::parse(tools ? tools : "null");
  return Json::parse(read_chat(said, tools ? &known : nullptr, kMost));
}

// The parameter of the refusal; "": accepted.
std::string refused(const std::string& messages, const char* tools = nullptr) {
  try {
    read(messages.c_str(), tools);
    return "";
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.status(), 400) << messages;
    return refusal.param();
  }
}

std::string refused_call(const std::string& call) {
  return refused(R"([{"role": "assistant", "tool_calls": [)" + call + "]}]");
}

TEST(ChatReader, KeepsAChatAsItCame) {
  const char* said = R"([{"role": "system", "content": "be"}, {"content": "a", "role": "user"}])";
  EXPECT_EQ(read_chat(Json::parse(said), nullptr, kMost), text_of(Json::parse(said)));
  const char* tools = R"([{"type": "function", "function": {"name": "f", "description": "d",
      "parameters": {"z": {"b": 1}, "a": [null, true]}, "strict": false}}])";
  const Json both = read(said, tools);
  EXPECT_EQ(text_of(both["messages"]), text_of(Json::parse(said)));
  EXPECT_EQ(text_of(both["tools"]), text_of(Json::parse(tools)));  // names in their order
}

// transformers' templates pass arguments through tojson: a string would appear in quotes.
TEST(ChatReader, ArgumentsAreAnObject) {
  const char* wanted = R"([{"role":"assistant","tool_calls":[{"id":"c1","type":"function",)"
                       R"("function":{"name":"f","arguments":{"z":1,"a":"x"}}}],"content":null})"
                       R"(,{"role":"tool","tool_call_id":"c1","name":"f","content":"4"}])";
  for (const char* arguments : {R"({"z": 1, "a": "x"})", R"("{\"z\": 1, \"a\": \"x\"}")"}) {
    const std::string said =
        R"([{"role": "assistant", "tool_calls": [{"id": "c1", "type": "function",
             "function": {"name": "f", "arguments": )" +
        std::string(arguments) +
        R"(}}]}, {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "4"}])";
    EXPECT_EQ(text_of(read(said.c_str())), wanted) << said;
  }
  for (const char* none : {"", R"(, "arguments": "")", R"(, "arguments": null)"}) {
    const std::string call = R"({"function": {"name": "f")" + std::string(none) + "}}";
    const Json made = read((R"([{"role": "assistant", "tool_calls": [)" + call + "]}]").c_str());
    EXPECT_EQ(made[0]["tool_calls"][0]["function"]["arguments"], Json::object()) << none;
  }
}

TEST(ChatReader, NamesWhatIsWrongWithCalls) {
  const std::string call = "messages[0].tool_calls[0]", function = call + ".function";
  for (const auto& [given, named] :
       {std::pair<std::string, std::string>{"3", call},
        {"{}", function},
        {R"({"function": "f"})", function},
        {R"({"function": {}})", function + ".name"},
        {R"({"function": {"name": ""}})", function + ".name"},
        {R"({"function": {"name": 3}})", function + ".name"},
        {R"({"function": {"name": "f", "extra": 1}})", function + ".extra"},
        {R"({"function": {"name": "f"}, "id": 3})", call + ".id"},
        {R"({"function": {"name": "f"}, "type": "custom"})", call + ".type"},
        {R"({"function": {"name": "f"}, "index": 0})", call + ".index"},
        {R"({"function": {"name": "f", "arguments": [1]}})", function + ".arguments"},
        {R"({"function": {"name": "f", "arguments": "[1]"}})", function + ".arguments"},
        {R"({"function": {"name": "f", "arguments": "{"}})", function + ".arguments"},
        {R"({"function": {"name": "f", "arguments": {"a": "\u0000"}}})", function + ".arguments"},
        {R"({"function": {"name": "f", "arguments": "{\"a\": 1, \"a\": 2}"}})",
         function + ".arguments"}})
    EXPECT_EQ(refused_call(given), named) << given;
  for (const char* calls : {"{}", "3", "\"f\""})
    EXPECT_EQ(refused(R"([{"role": "assistant", "tool_calls": )" + std::string(calls) + "}]"),
              "messages[0].tool_calls");
  EXPECT_EQ(refused(R"([{"role": "user", "content": "x", "tool_calls": [{}]}])"),
            "messages[0].tool_calls");
  EXPECT_EQ(refused(R"([{"role": "tool"}])"), "messages[0]");
  EXPECT_EQ(refused(R"([{"role": "tool", "content": "x", "tool_call_id": 3}])"),
            "messages[0].tool_call_id");
  EXPECT_EQ(refused(R"([{"role": "wizard", "content": "x"}])"), "messages[0].role");
}

// As in clients' dumps of earlier answers: templates test for the presence of fields.
TEST(ChatReader, WhatIsNullIsLeftOut) {
  const char* said =
      R"([{"role": "user", "content": "x", "tool_calls": [], "tool_call_id": null, "unheard": null},
      {"role": "assistant", "content": null, "tool_calls": null, "annotations": null},
      {"role": "assistant", "tool_calls": [{"id": null, "function": {"name": "f", "arguments": null}, "index": null}]},
      {"role": "tool", "content": "4", "name": null}])";
  EXPECT_EQ(
      text_of(read(said)),
      R"([{"role":"user","content":"x"},{"role":"assistant","content":""},)"
      R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}],"content":null},)"
      R"({"role":"tool","content":"4"}])");
  const char* tools =
      R"([{"type": null, "unheard": null, "function": {"name": "f", "description": null, "strict": null,
      "parameters": {"default": null}}}])";
  EXPECT_EQ(text_of(read(said, tools)["tools"]),
            R"([{"function":{"name":"f","parameters":{"default":null}}}])");
}

TEST(ChatReader, NamesWhatIsWrongWithTools) {
  const std::string said = R"([{"role": "user", "content": "x"}])";
  for (const auto& [given, named] :
       {std::pair{"[]", "tools"},
        {"{}", "tools"},
        {"[3]", "tools[0]"},
        {"[{}]", "tools[0].function"},
        {R"([{"type": "retrieval"}])", "tools[0].type"},
        {R"([{"function": {"name": 3}}])", "tools[0].function.name"},
        {R"([{"function": {"name": "f", "description": 3}}])", "tools[0].function.description"},
        {R"([{"function": {"name": "f", "parameters": []}}])", "tools[0].function.parameters"},
        {R"([{"function": {"name": "f", "strict": 1}}])", "tools[0].function.strict"},
        {R"([{"function": {"name": "f", "arguments": {}}}])", "tools[0].function.arguments"},
        {R"([{"function": {"name": "f", "parameters": {"a": "\u0000"}}}])", "tools"}})
    EXPECT_EQ(refused(said, given), named) << given;
}

TEST(ChatReader, SizesAndDepthsAreBounded) {
  const std::string large(kMost, 'x'), said = R"([{"role": "user", "content": "x"}])";
  EXPECT_EQ(refused(R"([{"role": "user", "content": ")" + large + "\"}]"), "");
  EXPECT_EQ(refused(R"([{"role": "user", "content": "x)" + large + "\"}]"), "messages");
  EXPECT_EQ(refused_call(R"({"function": {"name": ")" + large + "\"}}"), "messages");
  EXPECT_EQ(
      refused(said, (R"([{"function": {"name": "f", "description": ")" + large + "\"}}]").c_str()),
      "tools");
  const auto nested = [](int depth) {
    return std::string(size_t(depth), '[') + std::string(size_t(depth), ']');
  };
  const std::string begin = R"([{"function": {"name": "f", "parameters": {"a": )";
  EXPECT_EQ(refused(said, (begin + nested(10) + "}}}]").c_str()), "");
  EXPECT_EQ(refused(said, (begin + nested(30) + "}}}]").c_str()), "tools");
  EXPECT_EQ(refused_call(R"({"function": {"name": "f", "arguments": {"a": )" + nested(30) + "}}}"),
            "messages[0].tool_calls[0].function.arguments");
  Json many = Json::array();
  for (int i = 0; i < 129; ++i) many.push_back({{"function", {{"name", "f"}}}});
  EXPECT_EQ(refused(said, text_of(many).c_str()), "tools");
}

TEST(ChatReader, NumbersAreBounded) {
  Json messages = Json::array(), calls = messages;
  for (int i = 0; i < 1024; ++i) messages.push_back({{"role", "user"}, {"content", ""}});
  EXPECT_EQ(refused(text_of(messages)), "");
  messages.push_back(messages[0]);
  EXPECT_EQ(refused(text_of(messages)), "messages");
  for (int i = 0; i < 129; ++i) calls.push_back({{"function", {{"name", "f"}}}});
  EXPECT_EQ(refused(text_of(Json::array({{{"role", "assistant"}, {"tool_calls", calls}}}))),
            "messages[0].tool_calls");
}

// A text is measured before parsing.
TEST(ChatReader, ArgumentsOfManyObjectsAreNotRead) {
  std::string many = "{\"a\":[{}";
  for (int i = 0; i < 50000; ++i) many += ",{}";
  const Json call = {{"function", {{"name", "f"}, {"arguments", many + "]}"}}}};
  try {
    read(text_of(Json::array({{{"role", "assistant"}, {"tool_calls", Json::array({call})}}}))
             .c_str());
    ADD_FAILURE() << "not refused";
  } catch (const Refusal& refusal) {
    EXPECT_NE(std::string(refusal.what()).find("bytes of text"), std::string::npos)
        << refusal.what();
  }
}

}  // namespace
}  // namespace tessera::server
