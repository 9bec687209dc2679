#include "server/request_reader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "server/chat_reader.h"
#include "server/field_names.h"
#include "server/fields.h"
#include "server/image_fields.h"
#include "server/refusal.h"
#include "tessera/words.h"

namespace tessera::server {
namespace {

// Attributes the library's error about a word to this field.
template <class Read>
auto worded(const std::string& name, const Read& read) {
  try {
    return read();
  } catch (const Error& e) {
    throw wrong(name, in_fields(e.what()));
  }
}

void check_size(const Limits& limits, const std::vector<std::string>& texts, const char* name) {
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  check_text(bytes, limits.prompt, name);
}

void check_images(int64_t images, const GenerateRequest& q, const ModelFacts& model,
                  const Limits& limits) {
  if (images > limits.images)
    throw wrong("count", "count: " + std::to_string(images) +
                             " images are asked for; a request has " +
                             std::to_string(limits.images) + " at most");
  const double width = double(q.width ? q.width : model.width);
  const double height = double(q.height ? q.height : model.height);
  const double frames = double(std::max(q.frames ? q.frames : model.frames, int64_t{1}));
  const double pixels = width * height * frames * double(images);
  if (pixels > double(limits.pixels))
    throw wrong("width", "width, height: " + std::to_string(static_cast<int64_t>(pixels)) +
                             " pixels in all; a request has " + std::to_string(limits.pixels) +
                             " at most");
}

void read_subject(Fields& fields, GenerateRequest& q, const Limits& limits) {
  std::string prompt;
  if (fields.text("prompt", prompt)) q.prompts = {prompt};
  if (fields.texts("prompts", q.prompts) && !prompt.empty())
    throw wrong("prompts", "prompt and prompts: give one of them");
  fields.texts("classes", q.classes, true);
  if (q.prompts.empty() == q.classes.empty())
    throw wrong("prompt", q.prompts.empty()
                              ? "what to make is missing: give classes, prompt or prompts"
                              : "prompt and classes: give one of them");
  std::string negative;
  if (fields.text("negative_prompt", negative)) q.negative_prompt = negative;
  check_size(limits, q.prompts, "prompt");
  check_size(limits, q.classes, "classes");
  check_size(limits, {negative}, "negative_prompt");
}

std::vector<double> read_list(Fields& fields, const char* name, const Limits& limits) {
  std::vector<double> numbers;
  const Json* const list = fields.take_list(name);
  if (!list) return numbers;
  const bool fits = list->is_array() &&
                    std::ranges::all_of(*list, [](const Json& one) { return one.is_number(); });
  if (!fits || std::ssize(*list) > limits.steps + 1)
    throw wrong(name, std::string(name) + ": expected a list of " +
                          std::to_string(limits.steps + 1) + " numbers at most");
  for (const Json& one : *list) numbers.push_back(one.get<double>());
  return numbers;
}

void read_numbers(Fields& fields, GenerateRequest& q, const Limits& limits) {
  int64_t whole = 0;
  double number = 0;
  if (fields.whole("steps", 1, limits.steps, whole)) q.steps = static_cast<int>(whole);
  q.timesteps = read_list(fields, "timesteps", limits);
  q.sigmas = read_list(fields, "sigmas", limits);
  if (fields.whole("count", 1, limits.images, whole)) q.count = static_cast<int>(whole);
  if (fields.number("guidance", 0, 1e4, number)) q.guidance = static_cast<float>(number);
  if (fields.number("true_guidance", 0, 1e4, number)) q.true_guidance = static_cast<float>(number);
  if (fields.number("guidance_rescale", 0, 1, number))
    q.guidance_rescale = static_cast<float>(number);
  if (fields.number("cfg_normalization", 0, 1e4, number))
    q.cfg_normalization = static_cast<float>(number);
  if (fields.number("cfg_truncation", 0, 1, number)) q.cfg_truncation = static_cast<float>(number);
  fields.whole("width", 1, kMostSide, q.width);
  fields.whole("height", 1, kMostSide, q.height);
  fields.whole("frames", 1, 1 << 16, q.frames);
  fields.whole("text_tokens", 1, 1 << 16, q.text_tokens);
  fields.flag("binning", q.binning);
  fields.flag("fit", q.fit);
  bool clean = false;
  if (fields.flag("clean_caption", clean)) q.clean_caption = clean;
}

// Each image has its own seed, with which the image can be made again alone.
void read_noise(Fields& fields, GenerateRequest& q, int64_t images) {
  const bool seeded = fields.seed("seed", q.seed);
  if (const Json* seeds = fields.take_list("seeds")) {
    if (seeded) throw wrong("seeds", "seed and seeds: give one of them");
    if (!seeds->is_array() || std::ssize(*seeds) != images)
      throw wrong("seeds", "seeds: expected a list of " + std::to_string(images) +
                               " whole numbers, one for each image");
    for (const Json& one : *seeds) {
      if (!one.is_number_unsigned())
        throw wrong("seeds", "seeds: expected whole numbers from 0 to 2^64 - 1");
      q.seeds.push_back(one.get<uint64_t>());
    }
  } else if (images > 1) {
    for (int64_t i = 0; i < images; ++i) q.seeds.push_back(q.seed + static_cast<uint64_t>(i));
  }
  std::string word;
  if (fields.text("noise", word))
    q.noise = worded("noise", [&] { return choice_of<NoiseSource>(word, "noise"); });
  if (fields.text("scheduler", word))
    q.scheduler = worded("scheduler", [&] { return parse_scheduler(word); });
  if (fields.text("cache", word)) q.cache = worded("cache", [&] { return parse_step_cache(word); });
}

// File of an adapter; a name cannot leave the folder.
std::string adapter_file(const std::string& folder, const std::string& name,
                         const std::string& field) {
  const bool plain = !name.empty() && name.size() <= 200 && name.front() != '.' &&
                     std::ranges::all_of(name, [](char c) {
                       return static_cast<unsigned char>(c) >= ' ' && c != '/' && c != '\\';
                     });
  if (!plain)
    throw wrong(field, field + ": expected the name of a file of the server's folder of adapters");
  for (const char* end : {"", ".safetensors"}) {
    const std::string file = (std::filesystem::path(folder) / (name + end)).string();
    std::error_code error;
    if (std::filesystem::is_regular_file(file, error)) return file;
  }
  throw wrong(field, field + ": the server has no adapter '" + name + "'");
}

void read_loras(Fields& fields, GenerateRequest& q, const Limits& limits) {
  const Json* const list = fields.take_list("loras");
  if (!list) return;
  if (limits.loras.empty())
    throw wrong("loras", "loras: this server has no folder of adapters (--lora-dir)");
  if (!list->is_array() || list->size() > 16)
    throw wrong("loras", "loras: expected a list of 16 adapters at most");
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string at = "loras[" + std::to_string(i) + "]";
    Fields one((*list)[i], at, true);
    Lora lora;
    std::string name;
    if (!one.text("name", name)) throw wrong(at + ".name", at + ".name: expected a name");
    one.number("strength", -1000, 1000, lora.strength);
    one.finish();
    lora.file = adapter_file(limits.loras, name, at + ".name");
    q.loras.push_back(lora);
  }
}

GenerateRequest read_generate(const Json& request, const ModelFacts& model, const Limits& limits) {
  Fields fields(request, "request");
  GenerateRequest q;
  read_subject(fields, q, limits);
  read_numbers(fields, q, limits);
  read_image_fields(fields, q);
  const auto subjects = std::ssize(q.prompts) + std::ssize(q.classes);
  const int64_t images = subjects * q.count;
  check_images(images, q, model, limits);
  read_noise(fields, q, images);
  read_loras(fields, q, limits);
  fields.finish();
  return q;
}

void read_prompt(Fields& fields, CompleteRequest& q, const Limits& limits) {
  std::string prompt;
  const bool one = fields.text("prompt", prompt);
  const bool several = fields.texts("prompts", q.prompts);
  if (one) q.prompts = {prompt};
  const Json* messages = fields.take("messages");
  if (one + several + (messages != nullptr) != 1)
    throw wrong("prompt", "give one of prompt, prompts and messages");
  const Json* tools = fields.take_list("tools");
  if (tools && !messages) throw wrong("tools", "tools: only a chat has them; give messages");
  bool thinks = false;
  const bool switched = fields.flag("enable_thinking", thinks);
  if (switched && !messages)
    throw wrong("enable_thinking", "enable_thinking: only a chat has it; give messages");
  if (messages) q.chat = read_chat(*messages, tools, limits.prompt, switched ? &thinks : nullptr);
  check_size(limits, q.prompts, "prompt");
  fields.flag("raw", q.raw);
}

void check_answers(const CompleteRequest& q, const Limits& limits) {
  const int64_t answers = std::max<int64_t>(std::ssize(q.prompts), 1) * q.n;
  if (answers > limits.images)
    throw wrong(q.n > 1 ? "n" : "prompts", "prompts, n: " + std::to_string(answers) +
                                               " answers are asked for; a request has " +
                                               std::to_string(limits.images) + " at most");
}

void read_decoding(Fields& fields, CompleteRequest& q) {
  int64_t whole = 0;
  double number = 0;
  std::string word;
  const bool decode = fields.text("decode", q.decode);
  if (fields.number("threshold", 0, 1, number)) {
    if (decode) throw wrong("threshold", "decode and threshold: give one of them");
    q.decode = "threshold:" + std::to_string(number);
  }
  if (fields.whole("block", 1, 1 << 16, whole)) q.block = static_cast<int>(whole);
  if (fields.whole("steps", 1, 1 << 16, whole)) q.steps = static_cast<int>(whole);
  if (fields.text("cache", word)) q.cache = worded("cache", [&] { return parse_cache(word); });
  if (fields.text("stop_at_eos", word))
    q.stop_at_eos =
        worded("stop_at_eos", [&] { return choice_of<StopAtEos>(word, "stop_at_eos"); });
  fields.text("select", q.select);
  fields.flag("select_refresh", q.select_refresh);
  fields.flag("select_prefill", q.select_prefill);
}

// Reads sampling options and log-probability options.
void read_drawing(Fields& fields, CompleteRequest& q, const ModelFacts& model,
                  const Limits& limits) {
  int64_t whole = 0;
  fields.number("temperature", 0, 100, q.temperature);
  fields.whole("top_k", 0, 1 << 30, q.top_k);
  if (fields.number("top_p", 0, 1, q.top_p) && q.top_p == 0)
    throw wrong("top_p", "top_p: expected a number above 0, up to 1");
  if (fields.number("repetition_penalty", 0, 100, q.repetition_penalty) &&
      q.repetition_penalty == 0)
    throw wrong("repetition_penalty", "repetition_penalty: expected a number above 0");
  fields.seed("seed", q.seed);
  if (fields.whole("logprobs", 0, kMostLogprobs, whole)) q.logprobs = static_cast<int>(whole);
  if (!fields.whole("n", 1, limits.images, whole)) return;
  q.n = static_cast<int>(whole);
  if (q.n > 1 && q.temperature == 0 && !model.draws)
    throw wrong("n",
                "n: at temperature 0 all answers are one and the same; give a temperature, "
                "such as 0.8");
}

CompleteRequest read_complete(const Json& request, const ModelFacts& model, const Limits& limits) {
  Fields fields(request, "request");
  CompleteRequest q;
  read_prompt(fields, q, limits);
  fields.whole("max_tokens", 1, limits.tokens, q.max_tokens);
  read_decoding(fields, q);
  read_drawing(fields, q, model, limits);
  check_answers(q, limits);
  fields.texts("stop", q.stop);
  if (q.stop.size() > 16) throw wrong("stop", "stop: 16 texts at most end an answer");
  for (const std::string& text : q.stop)
    if (text.empty()) throw wrong("stop", "stop: an empty text ends every answer; leave it out");
  check_size(limits, q.stop, "stop");
  fields.finish();
  return q;
}

}  // namespace

Ask read_request(const Json& request, const ModelFacts& model, const Limits& limits) {
  if (model.kind == Kind::text) return read_complete(request, model, limits);
  return read_generate(request, model, limits);
}

}  // namespace tessera::server
