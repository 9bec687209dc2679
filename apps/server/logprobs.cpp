#include "server/logprobs.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace tessera::server {
namespace {

std::string bytes_in(const Json& token) {
  std::string bytes;
  for (const Json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<uint8_t>());
  return bytes;
}

// OpenAI's spelling of a token inside a character; distinct for each token.
std::string name_of(const Json& token, bool chat) {
  const auto text = token["text"].get<std::string>();
  const std::string bytes = bytes_in(token);
  if (bytes.empty() || bytes == text) return text;
  std::string name = chat ? "" : "bytes:";
  for (const char c : bytes) {
    char spelled[5];
    std::snprintf(spelled, sizeof spelled, "\\x%02x", static_cast<unsigned char>(c));
    name += spelled;
  }
  return name;
}

bool begins_character(char c) { return (c & 0xC0) != 0x80; }

// Tokens of an answer before a stop text.
Json tokens_in(const Json& completion) {
  const Json& token_list = completion["logprobs"];
  if (completion["finish"] != "stop") return token_list;
  const size_t length = completion["text"].get_ref<const std::string&>().size();
  Json tokens = Json::array();
  size_t bytes = 0;
  for (const Json& token : token_list) {
    if (bytes >= length) break;
    bytes += token["bytes"].size();
    tokens.push_back(token);
  }
  return tokens;
}

Json chat_token_of(const Json& token) {
  return {
      {"token", name_of(token, true)}, {"logprob", token["logprob"]}, {"bytes", token["bytes"]}};
}

Json chat_logprobs_of(const Json& tokens) {
  Json content = Json::array();
  for (const Json& token : tokens) {
    Json top = Json::array();
    for (const Json& other : token["top"]) top.push_back(chat_token_of(other));
    content.push_back(chat_token_of(token));
    content.back()["top_logprobs"] = std::move(top);
  }
  return {{"content", content}, {"refusal", nullptr}};
}

Json completion_logprobs_of(const Json& tokens) {
  Json names = Json::array(), logprobs = names, tops = names, offsets = names;
  size_t offset = 0;  // position in characters
  for (const Json& token : tokens) {
    const std::string bytes = bytes_in(token);
    Json top = Json::object();
    for (const Json& other : token["top"]) top[name_of(other, false)] = other["logprob"];
    const bool inside = !bytes.empty() && !begins_character(bytes[0]) && offset > 0;
    names.push_back(name_of(token, false));
    logprobs.push_back(token["logprob"]);
    tops.push_back(std::move(top));
    offsets.push_back(offset - (inside ? 1 : 0));
    offset += static_cast<size_t>(std::ranges::count_if(bytes, begins_character));
  }
  return {{"tokens", names},
          {"token_logprobs", logprobs},
          {"top_logprobs", tops},
          {"text_offset", offsets}};
}

}  // namespace

Json logprobs_of(const Json& completion, bool chat) {
  if (!completion.contains("logprobs")) return nullptr;
  const Json tokens = tokens_in(completion);
  return chat ? chat_logprobs_of(tokens) : completion_logprobs_of(tokens);
}

}  // namespace tessera::server
