#include "server/request_reader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "server/chat_reader.h"
#include "server/field_reader.h"
#include "server/fields.h"
#include "server/image_fields.h"
#include "server/refusal.h"

namespace tessera::server {
namespace {

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

void read_plain_fields(Fields& fields, GenerateRequest& q, const Limits& limits) {
  visit_fields(q, FieldReader(fields, {{"steps", limits.steps},
                                       {"timesteps", limits.steps + 1},
                                       {"sigmas", limits.steps + 1},
                                       {"count", limits.images},
                                       {"width", kMostSide},
                                       {"height", kMostSide}}));
}

// Each image has its own seed, with which the image can be made again alone.
void read_seeds(Fields& fields, GenerateRequest& q, int64_t images) {
  if (const Json* seeds = fields.take_list("seeds")) {
    if (fields.take("seed")) throw wrong("seeds", "seed and seeds: give one of them");
    if (!seeds->is_array() || std::ssize(*seeds) != images)
      throw wrong("seeds", "seeds: expected a list of " + std::to_string(images) +
                               " whole numbers, one for each image");
    for (const Json& seed : *seeds) {
      if (!seed.is_number_unsigned())
        throw wrong("seeds", "seeds: expected whole numbers from 0 to 2^64 - 1");
      q.seeds.push_back(seed.get<uint64_t>());
    }
  } else if (images > 1) {
    for (int64_t i = 0; i < images; ++i) q.seeds.push_back(q.seed + static_cast<uint64_t>(i));
  }
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
    Fields entry((*list)[i], at, true);
    Lora lora;
    std::string name;
    if (!entry.text("name", name)) throw wrong(at + ".name", at + ".name: expected a name");
    entry.number("strength", -1000, 1000, lora.strength);
    entry.finish();
    lora.file = adapter_file(limits.loras, name, at + ".name");
    q.loras.push_back(lora);
  }
}

GenerateRequest read_generate(const Json& request, const ModelFacts& model, const Limits& limits) {
  Fields fields(request, "request");
  GenerateRequest q;
  read_subject(fields, q, limits);
  read_plain_fields(fields, q, limits);
  read_image_fields(fields, q);
  const auto subjects = std::ssize(q.prompts) + std::ssize(q.classes);
  const int64_t images = subjects * q.count;
  check_images(images, q, model, limits);
  read_seeds(fields, q, images);
  read_loras(fields, q, limits);
  fields.finish();
  return q;
}

void read_prompt(Fields& fields, CompleteRequest& q, const Limits& limits) {
  std::string prompt;
  const bool has_prompt = fields.text("prompt", prompt);
  const bool several = fields.texts("prompts", q.prompts);
  if (has_prompt) q.prompts = {prompt};
  const Json* messages = fields.take("messages");
  if (has_prompt + several + (messages != nullptr) != 1)
    throw wrong("prompt", "give one of prompt, prompts and messages");
  const Json* tools = fields.take_list("tools");
  if (tools && !messages) throw wrong("tools", "tools: only a chat has them; give messages");
  bool thinks = false;
  const bool switched = fields.flag("enable_thinking", thinks);
  if (switched && !messages)
    throw wrong("enable_thinking", "enable_thinking: only a chat has it; give messages");
  if (messages) q.chat = read_chat(*messages, tools, limits.prompt, switched ? &thinks : nullptr);
  check_size(limits, q.prompts, "prompt");
}

void check_answers(const CompleteRequest& q, const Limits& limits) {
  const int64_t answers = std::max<int64_t>(std::ssize(q.prompts), 1) * q.n;
  if (answers > limits.images)
    throw wrong(q.n > 1 ? "n" : "prompts", "prompts, n: " + std::to_string(answers) +
                                               " answers are asked for; a request has " +
                                               std::to_string(limits.images) + " at most");
}

// Fields with another name or narrower bounds than the library's.
void read_special_fields(Fields& fields, CompleteRequest& q, const ModelFacts& model) {
  double threshold = 0;
  if (fields.number("threshold", 0, 1, threshold)) {
    if (fields.take("decode")) throw wrong("threshold", "decode and threshold: give one of them");
    q.decode = "threshold:" + std::to_string(threshold);
  }
  if (q.top_p == 0) throw wrong("top_p", "top_p: expected a number above 0, up to 1");
  if (q.repetition_penalty == 0)
    throw wrong("repetition_penalty", "repetition_penalty: expected a number above 0");
  if (q.n > 1 && q.temperature == 0 && !model.draws)
    throw wrong("n",
                "n: at temperature 0 all answers are one and the same; give a temperature, "
                "such as 0.8");
}

CompleteRequest read_complete(const Json& request, const ModelFacts& model, const Limits& limits) {
  Fields fields(request, "request");
  CompleteRequest q;
  read_prompt(fields, q, limits);
  visit_fields(q, FieldReader(fields, {{"max_tokens", limits.tokens},
                                       {"logprobs", kMostLogprobs},
                                       {"n", limits.images}}));
  read_special_fields(fields, q, model);
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
