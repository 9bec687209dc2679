#include "runtime/language.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/input_file.h"
#include "base/is_there.h"
#include "base/printable.h"
#include "load/gguf_language.h"
#include "load/meta_weights.h"
#include "models/registry.h"
#include "models/token_config.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::runtime {
namespace {

using base::Json;

std::string beside(const load::Component& part, const char* name) {
  const std::string path = part.folder + "/" + name;
  return base::is_there(path) ? path : "";
}

// "bos_token": "<s>" or {"content": "<s>"}.
std::string token_text(const Json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  return it->is_object() && it->contains("content") && it->at("content").is_string()
             ? it->at("content").get<std::string>()
             : "";
}

// Keys of generation_config.json without effect here: names, versions, other lengths.
constexpr const char* kInertInGeneration[] = {"_from_model_config", "pad_token_id",
                                              "cache_implementation"};

// Keys of other samplers of transformers, with their neutral values. A canvas has a temperature of
// its own.
struct Sampling {
  const char* key;
  double inert;
};
constexpr Sampling kSampling[] = {{"temperature", 1},
                                  {"top_k", 50},
                                  {"top_p", 1},
                                  {"min_p", 0},
                                  {"typical_p", 1},
                                  {"repetition_penalty", 1},
                                  {"encoder_repetition_penalty", 1},
                                  {"no_repeat_ngram_size", 0},
                                  {"num_beams", 1},
                                  {"num_return_sequences", 1},
                                  {"min_length", 0},
                                  {"max_length", 20}};
constexpr const char* kProcessors[] = {"suppress_tokens",     "begin_suppress_tokens",
                                       "bad_words_ids",       "forced_bos_token_id",
                                       "forced_eos_token_id", "exponential_decay_length_penalty"};

// Keys of other samplers: they change logits or lengths, so they are refused.
void refuse_other_sampling(const models::TokenConfig& read) {
  for (const Sampling& sampling : kSampling)
    if (read.has(sampling.key) &&
        !(read.at(sampling.key).is_number() && read.at(sampling.key) == sampling.inert))
      read.refuse_value(sampling.key, "the model's own sampler; leave it out");
  for (const char* key : kProcessors)
    if (read.has(key)) read.refuse_value(key, "the model's own sampler; leave it out");
}

// The released generate() of LLaDA2.1 has these as arguments.
std::string decode_of(const models::TokenConfig& read, const std::string& usual) {
  sample::DecodingPolicy p;
  sample::read_decode(usual, p);
  const auto has_key = [&](const char* key) { return read.has(key); };
  if (!has_key("editing_threshold") &&
      !(p.edits() && (has_key("threshold") || has_key("max_post_steps"))))
    return usual;
  return fmt::format("edit:{},{},{}", read.number("threshold", p.edits() ? p.threshold : 0.7, 0, 2),
                     read.number("editing_threshold", p.editing, 0, 2),
                     read.integer("max_post_steps", p.posts, 0, sample::kMostPosts));
}

// Reads the sampler of a canvas model from generation_config.json, beside the usual keys.
std::string canvas_of(const models::TokenConfig& read) {
  sample::CanvasRule rule;
  rule.max_denoising_steps =
      static_cast<int>(read.integer("max_denoising_steps", rule.max_denoising_steps, 1, 100000));
  rule.t_max = read.number("t_max", rule.t_max, 0, 100);
  rule.t_min = read.number("t_min", rule.t_min, 0, 100);
  rule.stability_threshold =
      static_cast<int>(read.integer("stability_threshold", rule.stability_threshold, 0, 100000));
  rule.confidence_threshold =
      read.number("confidence_threshold", rule.confidence_threshold, 0, 1e9);
  if (read.has("sampler_config")) {
    const Json& sampler = read.at("sampler_config");
    require(sampler.is_object(), ErrorCode::model, "{}: 'sampler_config' is {}; expected an object",
            read.where(), base::ConfigReader::shown(sampler));
    const models::TokenConfig sampler_config(sampler, read.where() + ": 'sampler_config'");
    const char* const class_name = "EntropyBoundSamplerConfig";
    if (sampler_config.text("_cls_name", class_name) != class_name)
      sampler_config.refuse_value("_cls_name", class_name);
    rule.entropy_bound = sampler_config.number("entropy_bound", rule.entropy_bound, 0, 1e9);
    sampler_config.check_rest({}, {});
  }
  require(rule.t_max > 0 && rule.t_min <= rule.t_max, ErrorCode::model,
          "{}: 't_max' {} and 't_min' {}; expected t_max above 0, and t_min no higher",
          read.where(), rule.t_max, rule.t_min);
  return sample::to_string(rule);
}

/// A file of a model's folder and its name for messages; "": none.
struct LanguageFile {
  Json json;
  std::string path;
};
struct LanguageFiles {
  LanguageFile tokenizer, tokenizer_config, generation;
};

LanguageFiles files_beside(const load::Component& part) {
  const auto read = [&](const char* name) {
    const std::string path = beside(part, name);
    return LanguageFile{path.empty() ? Json() : base::read_json(path), path};
  };
  return {read("tokenizer.json"), read("tokenizer_config.json"), read("generation_config.json")};
}

// The same from the metadata of a GGUF file.
LanguageFiles files_in(const std::string& gguf) {
  load::GgufModel model = load::read_gguf_model(gguf);
  const std::string tokenizer = model.tokenizer.is_null() ? "" : gguf;
  return {{std::move(model.tokenizer), tokenizer},
          {std::move(model.tokenizer_config), gguf},
          {std::move(model.generation), gguf}};
}

}  // namespace

Language::Language(const load::Component& part) : part_(part) {
  spec_ = models::language_model_of({part.config, part.description()});
  LanguageFiles files = load::is_whole_model(part) ? files_in(part.file) : files_beside(part);
  if (!files.tokenizer.path.empty())
    tokenizer_ =
        std::make_unique<tokenizer::ByteLevelBpe>(files.tokenizer.json, files.tokenizer.path);
  if (!files.tokenizer_config.path.empty()) {
    tokenizer_config_ = std::move(files.tokenizer_config.json);
    require(tokenizer_config_.is_object(), ErrorCode::model, "{}: expected a JSON object",
            files.tokenizer_config.path);
  }
  if (const auto& [generation, path] = files.generation; !path.empty()) {
    require(generation.is_object(), ErrorCode::model, "{}: expected a JSON object", path);
    const models::TokenConfig read(generation, path);
    says_max_tokens_ = read.has("max_new_tokens");
    max_tokens_ = read.integer("max_new_tokens", max_tokens_, 1, int64_t{1} << 24);
    ends_ = read.ids("eos_token_id", spec_.vocabulary);
    spec_.decode = spec_.canvas ? canvas_of(read) : decode_of(read, spec_.decode);
    // Other samplers of transformers have keys of their own and change the output.
    if (spec_.canvas) refuse_other_sampling(read);
    if (spec_.canvas) read.check_rest(kInertInGeneration, {});
    if (read.has("max_post_steps") && !spec_.decode.starts_with("edit"))
      unused_ = path + ": 'max_post_steps' has no effect without 'editing_threshold'";
  }
  read_template();
}

void Language::read_template() {
  if (const std::string path = beside(part_, "chat_template.jinja"); !path.empty()) {
    template_ = base::read_file(path, base::kLargestText);
    return;
  }
  const auto it = tokenizer_config_.find("chat_template");
  if (it == tokenizer_config_.end()) return;
  if (it->is_string()) template_ = it->get<std::string>();
  if (!it->is_array()) return;
  for (const Json& entry : *it)
    if (entry.is_object() && entry.value("template", Json()).is_string()) {
      const Json name = entry.value("name", Json());
      if (name == "default") template_ = entry.at("template").get<std::string>();
      if (name == "tool_use") tool_template_ = entry.at("template").get<std::string>();
    }
}

const tokenizer::ByteLevelBpe& Language::tokens() const {
  require(tokenizer_ != nullptr, ErrorCode::model,
          "'{}' has no {}; give the prompt as ids (`prompt_ids`)", part_.folder,
          load::is_whole_model(part_) ? "tokenizer" : "tokenizer.json");
  return *tokenizer_;
}

sample::SpecialIds Language::special() const {
  // generation_config.json goes before config.json, as in transformers.
  sample::SpecialIds ids{spec_.mask.value_or(-1), ends_.empty() ? spec_.ends : ends_, spec_.remove,
                         spec_.split};
  if (spec_.canvas) return ids;
  if (tokenizer_) {
    const std::string mask_token = token_text(tokenizer_config_, "mask_token");
    for (const std::string& token :
         {mask_token, std::string("<|mask|>"), std::string("<|mdm_mask|>"), std::string("[MASK]")})
      if (ids.mask < 0 && !token.empty()) ids.mask = tokenizer_->id_of(token);
    const std::string end = token_text(tokenizer_config_, "eos_token");
    if (ids.ends.empty() && !end.empty() && tokenizer_->id_of(end) >= 0)
      ids.ends.push_back(tokenizer_->id_of(end));
  }
  require(ids.mask >= 0 && ids.mask < spec_.vocabulary, ErrorCode::model,
          "'{}': nothing says which token is the mask; add \"{}\" to its {}", part_.folder,
          load::is_whole_model(part_) ? "tokenizer.ggml.mask_token_id" : "mask_token_id",
          load::is_whole_model(part_) ? "metadata" : "config.json");
  require(ids.mask != ids.remove && ids.mask != ids.split, ErrorCode::model,
          "'{}': token {} is the mask and edits the length of a block; expected different ones",
          part_.folder, ids.mask);
  for (const int32_t end : ids.ends)
    require(end != ids.remove && end != ids.split, ErrorCode::model,
            "'{}': token {} ends a text ('eos_token_id') and edits the length of a block; expected "
            "different ones",
            part_.folder, end);
  return ids;
}

// Passes the values of transformers to the template: tokens without a value are undefined, tools
// without a value are None.
std::string Language::rendered(const jinja::ValueDict& chat) const {
  const jinja::Value* tools = chat.find("tools");
  const bool for_tools = !tool_template_.empty() && tools && truth(*tools);
  const jinja::ChatTemplate form(for_tools ? tool_template_ : template_,
                                 part_.folder + ": chat template");
  jinja::ValueDict values;
  for (const char* token :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const std::string text = token_text(tokenizer_config_, token); !text.empty())
      values.set(token, text);
  for (const char* missing : {"tools", "documents"}) values.set(missing, nullptr);
  values.set("add_generation_prompt", true);
  for (const auto& [key, value] : chat.items()) {
    require(key == "messages" || key == "add_generation_prompt" || !truth(value) || form.reads(key),
            ErrorCode::usage,
            "`chat`: {} is nothing that the chat template of '{}' reads; leave it out",
            base::printable(key), part_.folder);
    values.set(key, value);
  }
  for (const jinja::Value& message : chat.find("messages")->items()) {
    const jinja::Value* calls = message.dict().find("tool_calls");
    require(!calls || !truth(*calls) || form.reads_part("tool_calls"), ErrorCode::usage,
            "`chat`: the chat template of '{}' reads no 'tool_calls' of messages; leave them out",
            part_.folder);
  }
  return form.render(values);
}

std::vector<int32_t> Language::prompt(const std::string& text, bool raw) const {
  if (raw || template_.empty()) return tokens().encode_alone(text);
  jinja::ValueDict turn, chat;
  turn.set("role", "user");
  turn.set("content", text);
  chat.set("messages", jinja::Value::list({std::move(turn)}));
  return tokens().encode(rendered(chat));
}

std::vector<int32_t> Language::chat(const std::string& text) const {
  require(!template_.empty(), ErrorCode::usage,
          "'{}' has no chat template; give a plain prompt (`prompt`)", part_.folder);
  return tokens().encode(rendered(jinja::chat_values(text)));
}

std::string Language::check(nn::DType dtype) const {
  const tensor::Uncounted aside;
  const load::TensorSet tensors = load::open_weights(part_);
  const load::MetaWeights meta_weights(tensors);
  spec_.make(meta_weights, spec_.whole(), dtype, 0);
  const std::string names = load::check_names(meta_weights, tensors, part_.weights(), spec_.unread);
  return names.empty() || unused_.empty() ? names + unused_ : names + "; " + unused_;
}

load::TensorSet Language::tensors() const {
  load::TensorSet files = load::open_weights(part_);
  files.quantise(rules_, load::ProductsOf::language_model);
  return files;
}

load::MetaWeights Language::on_meta() const {
  return load::has_weights(part_) ? load::MetaWeights(tensors()) : load::MetaWeights();
}

std::shared_ptr<const nn::TokenModel> Language::model(
    int block, nn::DType dtype, const load::WeightStore& store, int rank,
    const nn::Portion& portion, const std::shared_ptr<tensor::MemoryTracker>& rank_memory) {
  const bool none = std::ranges::find(portion.experts, true) == portion.experts.end();
  const int64_t without = !portion.experts.empty() && none ? 1 : 0;
  return models_.get(2 * int64_t{block} + without, rank, rank_memory, [&] {
    if (!checked_) (void)check(dtype);  // the caller reports the sentence of check()
    checked_ = true;
    return spec_.make(*weights(store), portion, dtype, block);
  });
}

std::vector<nn::ExpertCache::Kept> Language::take_experts(int rank) {
  const std::lock_guard lock(keeping_);
  return std::exchange(kept_experts_[rank], {});
}

void Language::keep_experts(int rank, std::vector<nn::ExpertCache::Kept> experts) {
  const std::lock_guard lock(keeping_);
  std::swap(kept_experts_[rank], experts);
}

int64_t Language::kept_bytes() const {
  const std::lock_guard lock(keeping_);
  int64_t sum = models_.bytes();
  for (const auto& [rank, experts] : kept_experts_)
    for (const auto& expert : experts) sum += expert.bytes;
  return sum;
}

void Language::release() {
  models_.release();
  decltype(kept_experts_) freed;
  const std::lock_guard lock(keeping_);
  std::swap(kept_experts_, freed);
}

nn::Geometry Language::geometry(nn::DType dtype, const nn::Shard& shard) const {
  return geometry_.of({dtype, shard.index, shard.count}, [&] {
    const tensor::Uncounted aside;
    nn::Portion portion = spec_.whole();
    portion.shard = shard;
    return spec_.make(load::MetaWeights(), portion, dtype, 0)->geometry();
  });
}

}  // namespace tessera::runtime
