// OpenAI's requests as ours.
#include <charconv>
#include <random>

#include "server/chat_reader.h"
#include "server/fields.h"
#include "server/openai.h"

namespace tessera::server {
namespace {

// What a seed is where none was asked for; whole in JavaScript, too.
uint64_t random_seed() {
  thread_local std::random_device source;
  return (uint64_t{source()} << 32 | source()) >> 11;
}

// What Tessera has one value of.
void only(Fields& fields, const std::string& name, const std::vector<Json>& values) {
  const Json* given = fields.take(name);
  if (!given) return;
  for (const Json& value : values)
    if (*given == value) return;
  throw wrong(name, name + ": Tessera does not do this; leave it out");
}

void read_size(const std::string& size, Json& request) {
  int64_t width = 0, height = 0;
  const char *at = size.data(), *end = at + size.size();
  const auto w = std::from_chars(at, end, width);
  const bool between = w.ec == std::errc() && w.ptr < end && *w.ptr == 'x';
  const auto h = between ? std::from_chars(w.ptr + 1, end, height) : w;
  if (!between || h.ec != std::errc() || h.ptr != end || width < 1 || height < 1)
    throw wrong("size", "size: expected WIDTHxHEIGHT, such as 512x512");
  request["width"] = width;
  request["height"] = height;
}

void pass(Fields& fields, const char* name, Json& request) {
  if (const Json* given = fields.take(name)) request[name] = *given;
}

// A name for the maker's statistics, which Tessera has none of.
void read_user(Fields& fields) {
  std::string ignored;
  fields.text("user", ignored);
}

// What a text request has in both forms.
void read_text_fields(Fields& fields, Translated& to) {
  fields.text("model", to.model);
  fields.flag("stream", to.stream);
  if (const Json* options = fields.take("stream_options")) {
    if (!to.stream)
      throw wrong("stream_options", "stream_options: without stream they say nothing; add it");
    Fields inner(*options, "stream_options", true);
    inner.flag("include_usage", to.stream_usage);
    only(inner, "include_obfuscation", {false});
    inner.finish();
  }
  for (const char* name : {"temperature", "stop", "seed", "block", "threshold", "decode", "select",
                           "cache", "raw", "n", "top_k", "top_p", "repetition_penalty"})
    pass(fields, name, to.request);
  only(fields, "frequency_penalty", {0});
  only(fields, "presence_penalty", {0});
  only(fields, "logit_bias", {Json::object()});
  read_user(fields);
}

void refuse_stream_with_logprobs(const Translated& to) {
  if (to.stream && to.request.contains("logprobs"))
    throw wrong("logprobs", "logprobs: they are there when the answer is whole; leave stream out");
}

// `where` is "messages[2].content".
std::string content_of(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  std::string all;
  if (!content.is_array() || content.empty())
    throw wrong(where, where + ": expected a text, or a list of parts that are texts");
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string here = where + "[" + std::to_string(i) + "]";
    Fields fields(content[i], here, true);
    std::string type, text;
    if (!fields.text("type", type) || type != "text" || !fields.text("text", text))
      throw wrong(here, here + ": expected {\"type\": \"text\", \"text\": ...}");
    fields.finish();
    all += text;
  }
  return all;
}

// A `name` is for nobody but of a tool: no template reads it. Calls are read as those of a job are.
Json message_of(const Json& message, const std::string& where) {
  Fields fields(message, where, true);
  std::string role, name, id;
  fields.text("role", role);
  const bool named = fields.text("name", name);
  const Json* content = fields.take("content");
  const bool assistant = role == "assistant", tool = role == "tool";
  const Json* calls = assistant ? fields.take("tool_calls") : nullptr;
  if (assistant && fields.take("refusal"))  // null, as an answer has it, is none
    throw wrong(where + ".refusal", where + ".refusal: Tessera does not do this; leave it out");
  if (tool && !fields.text("tool_call_id", id))
    throw wrong(where + ".tool_call_id", where + ".tool_call_id: expected the id of a call");
  fields.finish();
  if (role == "developer") role = "system";  // its newer name
  if (role.empty() || (!content && !calls))
    throw wrong(where, where + ": expected a role and a content");
  Json made = {{"role", role}, {"content", nullptr}};
  if (content) made["content"] = content_of(*content, where + ".content");
  if (calls) made["tool_calls"] = *calls;
  if (tool) made["tool_call_id"] = id;
  if (tool && named) made["name"] = name;
  return made;
}

// "none" shows the model no tools; what an answer says is text in any case.
void read_tools(Fields& fields, Json& request) {
  const Json* tools = fields.take("tools");
  const Json* choice = fields.take("tool_choice");
  if (choice && *choice != "auto" && *choice != "none")
    throw wrong("tool_choice", "tool_choice: expected auto or none; no answer is forced to a call");
  if (choice && *choice == "auto" && !tools)
    throw wrong("tool_choice", "tool_choice: without tools there is nothing to choose; give tools");
  only(fields, "parallel_tool_calls", {true});
  if (tools) check_tools(*tools);
  if (tools && (!choice || *choice == "auto")) request["tools"] = *tools;
}

}  // namespace

Translated translate_images(const Json& body,
                            const std::function<const ModelFacts&(const std::string&)>& find) {
  Fields fields(body, "body");
  Translated to;
  std::string prompt, size, form = "url";
  int64_t n = 1;
  fields.text("model", to.model);
  const ModelFacts& model = find(to.model);
  if (!fields.text("prompt", prompt)) throw wrong("prompt", "prompt is missing");
  to.names = {{"count", "n"}, {"seeds", "seed"}, {"width", "size"}, {"height", "size"}};
  if (model.classes > 0) {
    to.request["classes"] = Json::array({prompt});
    to.names["classes"] = "prompt";
  } else {
    to.request["prompt"] = prompt;
  }
  fields.whole("n", 1, 64, n);
  if (fields.text("size", size) && size != "auto") read_size(size, to.request);
  if (fields.text("response_format", form) && form != "url" && form != "b64_json")
    throw wrong("response_format", "response_format: expected url or b64_json");
  to.url = form == "url";
  for (const char* name : {"steps", "guidance", "negative_prompt", "scheduler", "seed", "noise"})
    pass(fields, name, to.request);
  only(fields, "quality", {"auto", "standard"});
  only(fields, "output_format", {"png"});
  only(fields, "background", {"auto", "opaque"});
  only(fields, "moderation", {"auto", "low"});
  read_user(fields);
  fields.finish();
  if (n > 1) to.request["count"] = n;
  if (!to.request.contains("seed")) {
    to.request["seeds"] = Json::array();
    for (int64_t i = 0; i < n; ++i) to.request["seeds"].push_back(random_seed());
  }
  return to;
}

Translated translate_completion(const Json& body) {
  Fields fields(body, "body");
  Translated to;
  read_text_fields(fields, to);
  const Json* prompt = fields.take("prompt");
  if (!prompt) throw wrong("prompt", "prompt is missing");
  to.request[prompt->is_array() ? "prompts" : "prompt"] = *prompt;
  to.names = {{"prompts", "prompt"}};
  pass(fields, "max_tokens", to.request);
  only(fields, "echo", {false});
  only(fields, "best_of", {1});
  only(fields, "suffix", {""});
  pass(fields, "logprobs", to.request);
  refuse_stream_with_logprobs(to);
  fields.finish();
  return to;
}

Translated translate_chat(const Json& body) {
  Fields fields(body, "body");
  Translated to;
  read_text_fields(fields, to);
  const Json* messages = fields.take("messages");
  if (!messages || !messages->is_array()) throw wrong("messages", "messages: expected a list");
  to.request["messages"] = Json::array();
  for (size_t i = 0; i < messages->size(); ++i)
    to.request["messages"].push_back(
        message_of((*messages)[i], "messages[" + std::to_string(i) + "]"));
  read_tools(fields, to.request);
  to.names = {{"prompt", "messages"}};
  int64_t tokens = 0;  // that both names mean, the newer first
  for (const char* name : {"max_tokens", "max_completion_tokens"})
    if (fields.whole(name, 1, INT64_MAX, tokens)) {
      to.request["max_tokens"] = tokens;
      to.names["max_tokens"] = name;
    }
  bool logprobs = false;
  int64_t top = 0;
  fields.flag("logprobs", logprobs);
  const bool likeliest = fields.whole("top_logprobs", 0, kMostLogprobs, top);
  if (likeliest && !logprobs)
    throw wrong("top_logprobs", "top_logprobs: without logprobs it says nothing; add it");
  if (logprobs) to.request["logprobs"] = top;
  to.names["logprobs"] = "top_logprobs";
  refuse_stream_with_logprobs(to);
  only(fields, "response_format", {{{"type", "text"}}});
  only(fields, "store", {false});
  fields.finish();
  return to;
}

}  // namespace tessera::server
