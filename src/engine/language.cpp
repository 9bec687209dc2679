#include "engine/language.h"

#include <filesystem>

#include "base/fail.h"
#include "base/input_file.h"
#include "load/meta_weights.h"
#include "models/token_config.h"
#include "tensor/scope.h"

namespace tessera::engine {
namespace {

namespace fs = std::filesystem;
using base::Json;

std::string beside(const load::Component& part, const char* name) {
  const fs::path path = fs::path(part.folder) / name;
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? path.string() : "";
}

// "bos_token": "<s>" or {"content": "<s>"}.
std::string token_text(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  return found->is_object() && found->contains("content") && found->at("content").is_string()
             ? found->at("content").get<std::string>()
             : "";
}

}  // namespace

Language::Language(const load::Component& part) : part_(part) {
  recipe_ = models::make_token_recipe(part.config, part.folder + "/config.json");
  if (const std::string path = beside(part, "tokenizer.json"); !path.empty())
    tokenizer_ = std::make_unique<tokenizer::ByteLevelBpe>(base::read_json(path), path);
  if (const std::string path = beside(part, "tokenizer_config.json"); !path.empty()) {
    tokenizer_config_ = base::read_json(path);
    require(tokenizer_config_.is_object(), ErrorCode::model, "{}: expected a JSON object", path);
  }
  if (const std::string path = beside(part, "generation_config.json"); !path.empty()) {
    const Json generation = base::read_json(path);
    require(generation.is_object(), ErrorCode::model, "{}: expected a JSON object", path);
    const models::TokenConfig read(generation, path);
    max_tokens_ = read.integer_or("max_new_tokens", 1, int64_t{1} << 24, max_tokens_);
    ends_ = read.ids("eos_token_id", recipe_->facts().vocabulary);
  }
  read_template();
}

void Language::read_template() {
  if (const std::string path = beside(part_, "chat_template.jinja"); !path.empty()) {
    template_ = base::read_file(path, base::kLargestText);
    return;
  }
  const auto found = tokenizer_config_.find("chat_template");
  if (found == tokenizer_config_.end()) return;
  if (found->is_string()) template_ = found->get<std::string>();
  if (!found->is_array()) return;
  for (const Json& one : *found)
    if (one.is_object() && one.value("name", "") == "default")
      template_ = one.value("template", "");
}

const tokenizer::ByteLevelBpe& Language::tokens() const {
  require(tokenizer_ != nullptr, ErrorCode::model,
          "'{}' has no tokenizer.json; give the prompt as ids (--prompt-ids)", part_.folder);
  return *tokenizer_;
}

sample::SpecialIds Language::special() const {
  const models::TokenFacts& facts = recipe_->facts();
  // generation_config.json goes before config.json, as in transformers.
  sample::SpecialIds ids{facts.mask.value_or(-1), ends_.empty() ? facts.ends : ends_};
  if (tokenizer_) {
    const std::string named = token_text(tokenizer_config_, "mask_token");
    for (const std::string& token :
         {named, std::string("<|mask|>"), std::string("<|mdm_mask|>"), std::string("[MASK]")})
      if (ids.mask < 0 && !token.empty()) ids.mask = tokenizer_->id_of(token);
    const std::string end = token_text(tokenizer_config_, "eos_token");
    if (ids.ends.empty() && !end.empty() && tokenizer_->id_of(end) >= 0)
      ids.ends.push_back(tokenizer_->id_of(end));
  }
  require(ids.mask >= 0 && ids.mask < facts.vocabulary, ErrorCode::model,
          "'{}': nothing says which token is the mask; add \"mask_token_id\" to its config.json",
          part_.folder);
  return ids;
}

std::string Language::rendered(Json messages) const {
  const tokenizer::ChatTemplate chat(template_, part_.folder + ": chat template");
  return chat.render({{"messages", std::move(messages)},
                      {"add_generation_prompt", true},
                      {"bos_token", token_text(tokenizer_config_, "bos_token")},
                      {"eos_token", token_text(tokenizer_config_, "eos_token")}});
}

std::vector<int32_t> Language::prompt(const std::string& text, bool raw) const {
  if (raw || template_.empty()) return tokens().encode(text);
  return tokens().encode(rendered(Json::array({{{"role", "user"}, {"content", text}}})));
}

std::vector<int32_t> Language::chat(const std::string& text) const {
  require(!template_.empty(), ErrorCode::usage,
          "'{}' has no chat template; give a plain prompt (--prompt)", part_.folder);
  Json json;
  try {
    json = base::parse_json(text, "chat");
  } catch (const Error& e) {
    throw Error(ErrorCode::usage, e.what());
  }
  if (json.is_object() && json.contains("messages")) json = Json(json.at("messages"));
  require(json.is_array() && !json.empty(), ErrorCode::usage,
          "chat: expected [{{\"role\": \"user\", \"content\": \"...\"}}, ...]");
  for (size_t i = 0; i < json.size(); ++i)
    require(json[i].is_object() && json[i].contains("role") && json[i].at("role").is_string() &&
                json[i].contains("content") && json[i].at("content").is_string(),
            ErrorCode::usage, "chat: message {} has no text as 'role' or as 'content'", i);
  return tokens().encode(rendered(std::move(json)));
}

std::string Language::check(nn::DType dtype) const {
  tensor::Scope aside;  // the rehearsal on meta counts for nobody
  const tensor::BindScope rehearsal(aside);
  const load::TensorSet tensors = load::open_weights(part_);
  const load::MetaWeights asked(tensors);
  recipe_->make(asked, {{0, recipe_->blocks()}, true, true}, dtype, 0);
  return load::check_names(asked, tensors, part_.folder);
}

nn::TokenModel& Language::model(int block, nn::DType dtype, const load::WeightStore& store,
                                int rank, const nn::Portion& portion) {
  if (block_ < 0) (void)check(dtype);  // who runs it says what is to be said
  auto& model = models_[rank];
  if (model && block_ == block) return *model;
  // Parts of other ranks for another block length go, too; the store shares what they share.
  auto made = recipe_->make(*store.open(load::open_weights(part_), device_), portion, dtype, block);
  if (block_ != block) models_.clear();
  block_ = block;
  return *(models_[rank] = std::move(made));
}

nn::TokenModel& Language::model(int block, nn::DType dtype, const load::WeightStore& store) {
  return model(block, dtype, store, 0, {{0, recipe_->blocks()}, true, true});
}

nn::Geometry Language::geometry(nn::DType dtype, const nn::Shard& shard) const {
  tensor::Scope aside;
  const tensor::BindScope rehearsal(aside);
  nn::Portion portion{{0, recipe_->blocks()}, true, true};
  portion.shard = shard;
  return recipe_->make(load::MetaWeights(), portion, dtype, 0)->geometry();
}

}  // namespace tessera::engine
