#include "tessera/tokenize.h"

#include "base/fail.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "base/stop.h"
#include "diffusion/plan_text.h"
#include "engine/state.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

using base::Json;

Tokenized of_language(const runtime::Language& language, std::vector<int32_t> ids) {
  Tokenized result{"model", std::move(ids), {}, 0};
  for (const int32_t id : result.ids)
    result.pieces.push_back(tokenizer::readable(language.tokens().bytes_of(id, false), true));
  return result;
}

std::vector<Tokenized> tokenize_language(const runtime::Language& language,
                                         const TokenizeRequest& request) {
  require(request.tokenizer.empty() || request.tokenizer == "model", ErrorCode::usage,
          "a language model has one tokenizer; leave out {}", base::printable(request.tokenizer));
  std::vector<Tokenized> texts;
  for (const std::string& text : request.prompts) {
    base::check_stop();
    texts.push_back(of_language(language, language.prompt(text, request.raw)));
  }
  if (!request.chat.empty()) texts.push_back(of_language(language, language.chat(request.chat)));
  return texts;
}

// The tokens of a prompt for a text encoder of a pipeline.
Tokenized of_part(const Model::State& state, models::TextPart part,
                  const diffusion::TextReader& reader, const std::string& prompt) {
  std::vector<std::string> notes;  // for runs
  const models::TextBatch batch = diffusion::tokens_of(
      part, reader, diffusion::cleaned_prompts(*state.spec, {prompt}, true, notes), notes);
  Tokenized result{part.tokenizer, batch.ids, {}, part.tokens};
  result.ids.resize(static_cast<size_t>(batch.visible.at(0)));
  for (const int32_t id : result.ids)
    result.pieces.push_back(tokenizer::readable(reader.tokenizer->text_of(id), true));
  return result;
}

std::vector<Tokenized> tokenize_pipeline(const Model::State& state,
                                         const TokenizeRequest& request) {
  require(request.chat.empty() && !request.raw, ErrorCode::usage,
          "'{}' is no language model: it takes prompts, and has no chat template", state.name);
  std::vector<Tokenized> texts;
  std::string tokenizers;
  std::vector<std::pair<models::TextPart, diffusion::TextReader>> readers;
  for (const auto& part : state.spec->text_parts) {
    if (!state.folder.has(part.tokenizer)) continue;
    tokenizers += (tokenizers.empty() ? "" : ", ") + part.tokenizer;
    if (request.tokenizer.empty() || request.tokenizer == part.tokenizer)
      readers.emplace_back(part, diffusion::reader_of(state, part));
  }
  for (const std::string& prompt : request.prompts)
    for (const auto& [part, reader] : readers) {
      base::check_stop();
      texts.push_back(of_part(state, part, reader, prompt));
    }
  require(!tokenizers.empty(), ErrorCode::usage, "'{}' has no tokenizer: it takes no text",
          state.name);
  require(!texts.empty(), ErrorCode::usage, "'{}' has no {}; it has: {}", state.name,
          base::printable(request.tokenizer), tokenizers);
  return texts;
}

}  // namespace

std::vector<Tokenized> Model::tokenize(const TokenizeRequest& request,
                                       const std::stop_token& stop) const {
  const base::BindStop bind(stop);
  require(!request.prompts.empty() || !request.chat.empty(), ErrorCode::usage,
          "there is no text; give `prompt`, `prompt_file` or `chat`");
  const State& state = this->state();
  if (state.language) return tokenize_language(*state.language, request);
  require(state.spec.has_value(), ErrorCode::usage, "'{}' takes no text", state.name);
  return tokenize_pipeline(state, request);
}

std::string to_json(const std::vector<Tokenized>& texts, const std::stop_token& stop) {
  const base::BindStop bind(stop);
  Json list = Json::array();
  for (const Tokenized& tokenized : texts) {
    base::check_stop();
    list.push_back(
        {{"tokenizer", tokenized.tokenizer}, {"ids", tokenized.ids}, {"pieces", tokenized.pieces}});
    if (tokenized.length > 0) list.back()["length"] = tokenized.length;
  }
  return base::json_text(list);
}

}  // namespace tessera
