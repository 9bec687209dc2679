// Translates OpenAI's requests to Tessera's.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <random>
#include <set>

#include "server/chat_reader.h"
#include "server/fields.h"
#include "server/image_fields.h"
#include "server/openai.h"
#include "tessera/encodings.h"

namespace tessera::server {
namespace {

// Fields of the APIs with a single supported value. Their defaults are neutral.
const std::vector<Neutral> kOfImages{{"background", {"auto", "opaque"}},
                                     {"complexity", {}},
                                     {"frame_count", {}},
                                     {"frame_duration_ms", {}},
                                     {"moderation", {"auto", "low"}},
                                     {"output_compression", {100}},
                                     {"output_format", {"png"}},
                                     {"partial_images", {0}},
                                     {"quality", {"auto", "standard"}},
                                     {"stream", {false}},
                                     {"style", {"vivid"}},
                                     {"svg", {}}};
const std::vector<Neutral> kOfTexts{
    {"frequency_penalty", {0}}, {"logit_bias", {Json::object()}}, {"presence_penalty", {0}}};
const std::vector<Neutral> kOfCompletions{{"echo", {false}}, {"suffix", {""}}};
const std::vector<Neutral> kOfChats{
    {"audio", {}},
    {"function_call", {"auto", "none"}},
    {"functions", {Json::array()}},
    {"metadata", {Json::object()}},
    {"modalities", {Json::array({"text"}), Json::array()}},
    {"moderation", {Json::object()}},
    {"parallel_tool_calls", {true}},
    {"prediction", {}},
    {"prompt_cache_options", {Json::object(), Json({{"mode", "implicit"}})}},
    {"prompt_cache_retention", {"in_memory"}},
    {"reasoning_effort", {"none", "medium"}},
    {"response_format", {Json({{"type", "text"}})}},
    {"service_tier", {"auto", "default"}},
    {"store", {false}},
    {"verbosity", {"medium"}},
    {"web_search_options", {}}};
// Fields of an answer's message, which clients send back unchanged.
const std::vector<Neutral> kOfMessages{
    {"annotations", {Json::array()}}, {"audio", {}}, {"function_call", {}}, {"refusal", {""}}};

constexpr size_t kMostFormText = size_t{1} << 16;

// Form fields that are always texts.
const std::set<std::string> kFormTexts{"background",
                                       "image_fit",
                                       "input_fidelity",
                                       "model",
                                       "moderation",
                                       "negative_prompt",
                                       "noise",
                                       "outpaint",
                                       "output_format",
                                       "prompt",
                                       "prompt_cache_key",
                                       "quality",
                                       "response_format",
                                       "safety_identifier",
                                       "scheduler",
                                       "size",
                                       "style",
                                       "user"};

// Forms have texts only: numbers, true and false are parsed.
Json value_of_text(const std::string& name, std::string_view text) {
  const bool word = kFormTexts.contains(name);
  if (!word && (text == "true" || text == "false")) return text == "true";
  const char *begin = text.data(), *end = begin + text.size();
  uint64_t whole = 0;
  if (const auto [at, error] = std::from_chars(begin, end, whole);
      !word && error == std::errc() && at == end)
    return whole;
  double number = 0;
  if (const auto [at, error] = std::from_chars(begin, end, number);
      !word && error == std::errc() && at == end && std::isfinite(number))
    return number;
  return std::string(text);
}

// First bytes of a base64 file; "": invalid.
std::string begin_of_base64(const std::string& text) {
  try {
    return from_base64(std::string_view(text).substr(0, 64));
  } catch (const Error&) {
    return "";
  }
}

// Seed if none was given; exact as a JavaScript number.
uint64_t random_seed() {
  thread_local std::random_device source;
  return (uint64_t{source()} << 32 | source()) >> 11;
}

// Parses a side of a size from the digits at `at`; -1: no digits. A side above every limit is
// reported as written.
int64_t read_side(const std::string& size, size_t& at, const char* name, std::string& too_large) {
  const size_t begin = at;
  while (at < size.size() && std::isdigit(static_cast<unsigned char>(size[at]))) ++at;
  const std::string digits = size.substr(begin, at - begin);
  if (digits.empty()) return -1;
  const size_t zeros = std::min(digits.find_first_not_of('0'), digits.size());
  const int64_t side = digits.size() - zeros > 9 ? INT64_MAX : std::stoll(digits);
  if (side > kMostSide)
    too_large +=
        (too_large.empty() ? "" : " and ") + std::string(name) + " " + digits.substr(0, 40);
  return side;
}

void read_size(const std::string& size, Json& request) {
  size_t at = 0;
  std::string too_large;
  const int64_t width = read_side(size, at, "width", too_large);
  const bool between = at < size.size() && size[at++] == 'x';
  const int64_t height = between ? read_side(size, at, "height", too_large) : -1;
  if (width < 1 || height < 1 || at != size.size())
    throw wrong("size", "size: expected WIDTHxHEIGHT, such as 512x512");
  if (!too_large.empty())
    throw wrong("size", "size: " + too_large + ": above " + std::to_string(kMostSide) +
                            ", the largest side");
  request["width"] = width;
  request["height"] = height;
}

// Labels for OpenAI's statistics and caches, ignored by Tessera.
void read_labels(Fields& fields) {
  std::string ignored;
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key"})
    fields.text(name, ignored);
}

void read_stream(Fields& fields, Translated& to) {
  fields.flag("stream", to.stream);
  const Json* options = fields.take("stream_options");
  if (!options) return;
  Fields inner(*options, "stream_options", true);
  inner.flag("include_usage", to.stream_usage);
  inner.only({{"include_obfuscation", {false}}});
  inner.finish();
  if (to.stream_usage && !to.stream)
    throw wrong("stream_options", "stream_options: without stream they say nothing; add it");
}

// Fields of text requests in both APIs.
void read_text_fields(Fields& fields, Translated& to) {
  fields.text("model", to.model);
  read_stream(fields, to);
  fields.only(kOfTexts);
  read_labels(fields);
}

void refuse_stream_with_logprobs(const Translated& to) {
  if (to.stream && to.request.contains("logprobs"))
    throw wrong("logprobs", "logprobs: they are there when the answer is whole; leave stream out");
}

// `where` is "messages[2].content".
std::string content_of(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  std::string result;
  if (!content.is_array() || content.empty())
    throw wrong(where, where + ": expected a text, or a list of parts that are texts");
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string item_name = where + "[" + std::to_string(i) + "]";
    Fields fields(content[i], item_name, true);
    std::string type, text;
    if (fields.text("type", type) && type != "text")
      throw wrong(item_name, item_name + ": a part of type '" + type.substr(0, 40) +
                                 "'; language models read parts of type text alone");
    if (type.empty() || !fields.text("text", text))
      throw wrong(item_name, item_name + ": expected {\"type\": \"text\", \"text\": ...}");
    fields.finish();
    result += text;
  }
  return result;
}

// `name` is only for tools, because no template reads it. Calls are parsed like those of a job.
Json message_of(const Json& message, const std::string& where) {
  Fields fields(message, where, true);
  std::string role, name, id;
  fields.text("role", role);
  const bool has_name = fields.text("name", name);
  const bool assistant = role == "assistant", tool = role == "tool";
  const Json* content = assistant ? fields.take_list("content") : fields.take("content");
  const Json* calls = fields.take_list("tool_calls");
  if (calls && !assistant)
    throw wrong(where + ".tool_calls", where + ".tool_calls: only an assistant has called");
  fields.only(kOfMessages);
  if (tool && !fields.text("tool_call_id", id))
    throw wrong(where + ".tool_call_id", where + ".tool_call_id: expected the id of a call");
  fields.finish();
  if (role == "developer") role = "system";  // OpenAI's newer name
  if (role.empty() || (!content && !assistant))
    throw wrong(where, where + ": expected a role and a content");
  Json result = {{"role", role}, {"content", nullptr}};
  if (content) result["content"] = content_of(*content, where + ".content");
  if (calls) result["tool_calls"] = *calls;
  if (tool) result["tool_call_id"] = id;
  if (tool && has_name) result["name"] = name;
  return result;
}

// With "none" the model sees no tools; answers are text in any case.
void translate_tools(Fields& fields, Json& request) {
  const Json* tools = fields.take_list("tools");
  const Json* choice = fields.take("tool_choice");
  if (choice && *choice != "auto" && *choice != "none")
    throw wrong("tool_choice", "tool_choice: expected auto or none; no answer is forced to a call");
  if (!tools) return;
  Json tool_list = read_tools(*tools);
  if (!choice || *choice == "auto") request["tools"] = std::move(tool_list);
}

// Name of vLLM and SGLang for values of the chat template.
void translate_switches(Fields& fields, Translated& to) {
  const Json* values = fields.take("chat_template_kwargs");
  if (!values) return;
  Fields inner(*values, "chat_template_kwargs", true);
  bool thinks = false;
  if (inner.flag("enable_thinking", thinks)) to.request["enable_thinking"] = thinks;
  to.names["enable_thinking"] = "chat_template_kwargs.enable_thinking";
  inner.finish();
}

bool is_given(const Json& body, const char* name) {
  const auto value = body.find(name);
  return value != body.end() && !value->is_null();
}

}  // namespace

namespace {

void read_prompt(Fields& fields, const ModelFacts& model, Translated& to) {
  std::string prompt;
  if (!fields.text("prompt", prompt)) throw wrong("prompt", "prompt is missing");
  if (model.classes > 0) {
    to.request["classes"] = Json::array({prompt});
    to.names["classes"] = "prompt";
  } else {
    to.request["prompt"] = prompt;
  }
}

// Fields of all image requests: number, size and format of the answer.
void read_image_answer(const Json& body, Fields& fields, Translated& to) {
  std::string size, form = "url";
  int64_t n = 1;
  to.names["count"] = "n";
  if (fields.whole("n", 1, 64, n) && n > 1) to.request["count"] = n;
  std::vector<std::string> hidden{"prompts", "classes", "count"};
  if (fields.text("size", size) && size != "auto") {
    read_size(size, to.request);
    hidden.insert(hidden.end(), {"width", "height"});
    to.names.insert({{"width", "size"}, {"height", "size"}});
  }
  if (fields.text("response_format", form) && form != "url" && form != "b64_json")
    throw wrong("response_format", "response_format: expected url or b64_json");
  to.url = form == "url";
  if (!is_given(body, "seed") && !is_given(body, "seeds"))
    for (int64_t i = 0; i < n; ++i) to.request["seeds"].push_back(random_seed());
  fields.only(kOfImages);
  read_labels(fields);
  fields.rest(to.request, hidden);
  fields.finish();
}

// Images in base64, under any name of OpenAI's APIs.
void read_source(Fields& fields, Translated& to) {
  std::vector<std::string> images;
  for (const char* name : {"image", "image[]"}) {
    std::vector<std::string> values;
    if (fields.texts(name, values)) images.insert(images.end(), values.begin(), values.end());
  }
  if (images.empty()) throw wrong("image", "image is missing: give a PNG, JPEG or WebP file");
  to.request["image"] = images;
  std::string mask;
  bool alpha = false;
  if (fields.text("mask", mask)) to.request["mask"] = mask;
  // The transparent part of a mask changes; in an opaque mask the white part changes.
  const bool has_flag = fields.flag("mask_alpha", alpha);
  if (has_flag || !mask.empty())
    to.request["mask_alpha"] = has_flag ? alpha : has_alpha(begin_of_base64(mask));
  fields.only({{"input_fidelity", {"low"}}});
}

}  // namespace

Translated translate_images(const Json& body,
                            const std::function<const ModelFacts&(const std::string&)>& find) {
  Fields fields(body, "body");
  Translated to;
  fields.text("model", to.model);
  read_prompt(fields, find(to.model), to);
  read_image_answer(body, fields, to);
  return to;
}

Translated translate_edits(const Json& body, bool variation,
                           const std::function<const ModelFacts&(const std::string&)>& find) {
  Fields fields(body, "body");
  Translated to;
  fields.text("model", to.model);
  const ModelFacts& model = find(to.model);
  if (model.kind == Kind::image && model.classes > 0)
    throw wrong("model", "model '" + model.name +
                             "' makes images of classes, and none from an image; take a model of "
                             "images from text");
  read_source(fields, to);
  if (!variation) {
    read_prompt(fields, model, to);
  } else {
    if (to.request.contains("mask"))
      throw wrong("mask", "mask: a variation has none; ask for an edit");
    to.request["prompt"] = "";
    double strength = 0.6;
    fields.number("strength", 0, 1, strength);
    to.request["strength"] = strength;
  }
  read_image_answer(body, fields, to);
  return to;
}

Json json_of_form(const std::vector<FormPart>& parts) {
  static const std::set<std::string> kFiles{"image", "image[]", "mask"};
  static const std::set<std::string> kLists{"image", "image[]"};
  Json body = Json::object();
  for (const FormPart& part : parts) {
    const std::string label = part.name.substr(0, 100);
    const bool image = kFiles.contains(part.name);
    if (!image && part.file) throw wrong(label, "'" + label + "' is no file of this request");
    if (!image && part.content.size() > kMostFormText)
      throw wrong(label, label + ": a text of " + std::to_string(part.content.size()) + " bytes");
    if (!image && !is_utf8(part.content)) throw wrong(label, label + ": expected a text in UTF-8");
    Json value = image ? Json(to_base64(part.content)) : value_of_text(part.name, part.content);
    if (kLists.contains(part.name))
      body[part.name].push_back(std::move(value));
    else if (!body.emplace(part.name, std::move(value)).second)
      throw wrong(label, "'" + label + "' stands twice");
  }
  return body;
}

Translated translate_completion(const Json& body) {
  Fields fields(body, "body");
  Translated to;
  read_text_fields(fields, to);
  const Json* prompt = fields.take("prompt");
  if (!prompt) throw wrong("prompt", "prompt is missing");
  to.request[prompt->is_array() ? "prompts" : "prompt"] = *prompt;
  to.names = {{"prompts", "prompt"}};
  const auto n = body.find("n");
  fields.only({{"best_of", {1, n == body.end() ? Json() : *n}}});
  fields.only(kOfCompletions);
  fields.rest(to.request, {"prompts", "messages", "tools"});
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
  translate_tools(fields, to.request);
  to.names = {{"prompt", "messages"}};
  translate_switches(fields, to);
  int64_t tokens = 0;  // value of both names, the newer first
  for (const char* name : {"max_tokens", "max_completion_tokens"})
    if (fields.whole(name, 1, INT64_MAX, tokens)) {
      to.request["max_tokens"] = tokens;
      to.names["max_tokens"] = name;
    }
  bool logprobs = false;
  int64_t top = 0;
  fields.flag("logprobs", logprobs);
  fields.whole("top_logprobs", 0, kMostLogprobs, top);
  if (top > 0 && !logprobs)
    throw wrong("top_logprobs", "top_logprobs: without logprobs it says nothing; add it");
  if (logprobs) to.request["logprobs"] = top;
  to.names["logprobs"] = "top_logprobs";
  refuse_stream_with_logprobs(to);
  fields.only(kOfChats);
  fields.rest(to.request, {"prompt", "prompts"});
  fields.finish();
  return to;
}

}  // namespace tessera::server
