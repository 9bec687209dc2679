#include "diffusion/plan_text.h"

#include <algorithm>

#include "base/fail.h"
#include "base/json_memory.h"
#include "base/printable.h"
#include "base/stop.h"
#include "caption/caption.h"
#include "cluster/agree.h"
#include "diffusion/sharded_text.h"
#include "diffusion/text_encoders.h"
#include "load/held_weights.h"
#include "tensor/uncounted.h"
#include "tokenizer/folder.h"

namespace tessera::diffusion {

using models::EncodedText;
using models::kMostTextTokens;
using models::PipelineSpec;
using models::TextBatch;
using models::TextPart;
using models::TextStates;
using tensor::Tensor;

namespace {

constexpr size_t kLongestSearched = size_t{1} << 16;  // bytes of a prompt

Tensor mask_of(const TextBatch& batch) {
  std::vector<int32_t> ones(batch.ids.size(), 0);
  for (int64_t r = 0; r < batch.texts(); ++r)
    std::fill_n(ones.begin() + r * batch.length, batch.visible[static_cast<size_t>(r)], 1);
  return Tensor::from(std::span<const int32_t>(ones), {batch.texts(), batch.length});
}

void check_there(const runtime::ModelState& state, const TextPart& part) {
  for (const std::string& name : {part.tokenizer, part.encoder}) {
    if (state.folder.absent.contains(name))
      state.folder.component(name, "; without it only `embeddings` FILE replaces a prompt");
    else
      require(state.folder.has(name), ErrorCode::model,
              "'{}' has no {}, so it takes no prompt: add the folder '{}' of the published model, "
              "or give `embeddings` FILE",
              state.name, name, name);
  }
}

void check_vocabulary(const runtime::ModelState& state, const Text& text,
                      const models::TextEncoder& encoder) {
  const int32_t largest = *std::max_element(text.batch.ids.begin(), text.batch.ids.end());
  require(largest < encoder.vocabulary(), ErrorCode::model,
          "'{}': the {} gives token {}, the {} knows {}; they do not belong together", state.name,
          text.part.tokenizer, largest, text.part.encoder, encoder.vocabulary());
  require(encoder.longest() == 0 || text.part.tokens <= encoder.longest(), ErrorCode::usage,
          "{} tokens of text: the {} of '{}' takes at most {}", text.part.tokens, text.part.encoder,
          state.name, encoder.longest());
}

// Runs an encoder on meta with the ranks of this process that share its layers.
TextStates predict_sharded(const runtime::ModelState& state, Text& text) {
  runtime::ModelState stage;
  runtime::copy_for_dry_run(state, state.options, stage);
  const runtime::RunMeters meters(stage.workers.ranks.size());
  Report report;
  const TextStates states = encode_sharded(stage, text.part.encoder, encoder_batch(text), 0, meters,
                                           base::current_stop(), report);
  std::vector<int64_t> weights;
  text.need.ranks.clear();
  for (const Report::Rank& rank : report.per_rank) {
    weights.push_back(rank.peak_bytes.weights);
    text.need.ranks.push_back(rank.peak_bytes.total);
  }
  text.need.weights = state.ranks().bytes_here(weights);
  text.need.peak = state.ranks().bytes_here(text.need.ranks);
  text.need.activations = text.need.peak - text.need.weights;
  text.need.work = meters.all->entries();
  return states;
}

// Runs an encoder on meta; returns the shapes of its states and sets text.need.
TextStates predict(const runtime::ModelState& state, Text& text) {
  const runtime::RunMeters meters;
  tensor::Scope scope;
  scope.memory = meters.memory;
  scope.meter = meters.all;
  const tensor::BindScope bind(scope);
  const auto weights = meta_weights_of(state, text.part.encoder);
  const auto encoder = encoder_over(state, text.part.encoder, weights);
  check_vocabulary(state, text, *encoder);
  const TextStates states = encoder->encode(encoder_batch(text));
  text.need = {meters.memory->peak(tensor::MemoryClass::weights),
               meters.memory->peak(tensor::MemoryClass::activations), meters.memory->peak(),
               weights->parameters() * size_of(state.dtype()), meters.all->entries()};
  text.need.ranks = {text.need.peak};
  return state.options.plan.shard > 1 ? predict_sharded(state, text) : states;
}

// Bytes of all weights of an encoder together, in the packed form for a run of one token.
int64_t packed_bytes(const runtime::ModelState& state, const TextPart& text) {
  const std::string& part = text.encoder;
  const runtime::RunMeters meters;
  tensor::Scope scope;
  scope.memory = meters.memory;
  const tensor::BindScope bind(scope);
  auto meta = meta_weights_of(state, part);
  const auto held_weights = std::make_shared<const load::HeldWeights>(meta);
  const bool spread = state.options.plan.shard > 1;
  models::LayerWeights layers;
  if (spread) layers = [&](int64_t) { return meta; };
  encoder_over(state, part, held_weights)->encode({{0}, {1}, 1, text.hidden}, {}, layers);
  const int64_t whole = meters.memory->current(tensor::MemoryClass::weights);
  return whole + (spread ? sharded_bytes(state, part, text.hidden) : 0);
}

// Texts of the part's length; an encoder may reduce a length that is not `requested`.
TextBatch usual_batch(const runtime::ModelState& state, const TextPart& part, bool requested,
                      int texts) {
  const tensor::Uncounted aside;
  const int64_t longest =
      encoder_over(state, part.encoder, meta_weights_of(state, part.encoder))->longest();
  const int64_t tokens = longest > 0 && !requested ? std::min(part.tokens, longest) : part.tokens;
  const auto count = static_cast<size_t>(texts);
  return {std::vector<int32_t>(count * static_cast<size_t>(tokens), 0),
          std::vector<int64_t>(count, tokens), tokens};
}

// Zeros of the same shapes.
TextStates zeros_of(TextStates states) {
  for (Tensor* x : states.all())
    if (x->defined()) *x = Tensor::zeros(x->shape(), x->dtype());
  return states;
}

// Adds rows [begin, end) of the encoders' states, by the names of the pipeline's embeddings.
void put(const PipelineSpec& spec, const std::vector<EncodedText>& texts, int64_t begin,
         int64_t end, const std::string& before, Embeddings& embeddings) {
  std::vector<EncodedText> rows = texts;
  for (EncodedText& text : rows) {
    const auto take_rows = [&](Tensor* x) {
      if (x->defined()) *x = x->slice(0, begin, end).contiguous();
    };
    for (Tensor* x : text.states.all()) take_rows(x);
    take_rows(&text.mask);
  }
  for (const auto& [name, x] : spec.embeddings(rows, end - begin)) embeddings[before + name] = x;
}

// The words of a prompt beyond the limit of `length` tokens, for a note.
std::string unseen(const TextReader& reader, const std::string& prompt, int64_t length) {
  const std::string whole = reader.text(prompt);
  const std::string before = whole.substr(0, std::min(whole.find(prompt), whole.size()));
  if (prompt.size() > kLongestSearched) return "its end";  // each try takes as long as the prompt
  std::vector<size_t> ends;                                // ends of words
  for (size_t i = 1; i <= prompt.size(); ++i)
    if (prompt[i - 1] != ' ' && (i == prompt.size() || prompt[i] == ' ')) ends.push_back(i);
  const auto over = std::partition_point(ends.begin(), ends.end(), [&](size_t end) {
    return std::ssize(reader.tokenizer->encode(before + prompt.substr(0, end))) <= length;
  });
  const size_t visible_end = over == ends.begin() ? 0 : *std::prev(over);
  return base::printable(std::string_view(prompt).substr(
      std::min(prompt.find_first_not_of(' ', visible_end), prompt.size())));
}

// Removes padding that all texts of a batch have.
void trim(TextBatch& batch) {
  const int64_t longest = *std::max_element(batch.visible.begin(), batch.visible.end());
  std::vector<int32_t> ids;
  for (int64_t r = 0; r < batch.texts(); ++r) {
    const auto first = batch.ids.begin() + r * batch.length;
    ids.insert(ids.end(), first, first + longest);
  }
  batch.ids = std::move(ids);
  batch.length = longest;
}

}  // namespace

Embeddings embeddings_of(const PipelineSpec& spec, const std::vector<Text>& texts,
                         const std::vector<TextStates>& states, bool two) {
  std::vector<EncodedText> encoded;
  int64_t count = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const Text& text = texts[i];
    encoded.push_back({states[i], {}, text.part.tokens});
    if (!text.there) continue;
    encoded.back().mask = mask_of(text.batch);
    count = text.batch.texts() - (two ? 1 : 0);
  }
  Embeddings embeddings;
  put(spec, encoded, 0, count, "", embeddings);
  if (two) put(spec, encoded, count, count + 1, "negative_", embeddings);
  return embeddings;
}

std::vector<std::string> cleaned_prompts(const PipelineSpec& spec, std::vector<std::string> prompts,
                                         bool clean, std::vector<std::string>& notes) {
  clean = clean && spec.cleans_captions;
  for (std::string& prompt : prompts) {
    if (!clean) {
      if (spec.plain_prompt) prompt = spec.plain_prompt(prompt);
      continue;
    }
    const caption::CleanCaption result = caption::clean_caption(prompt);
    if (result.text.empty() && !prompt.empty())
      notes.push_back(fmt::format(
          "cleaning leaves nothing of the prompt {}: this model's pipeline takes out Chinese "
          "characters, addresses, names of files and more; `clean_caption` off keeps them",
          base::printable(prompt)));
    if (result.misread)
      notes.push_back(
          fmt::format("the prompt {} looks like UTF-8 that was read in another encoding; it stays "
                      "as it is, where "
                      "diffusers with ftfy may repair it",
                      base::printable(prompt)));
    prompt = result.text;
  }
  return prompts;
}

TextReader reader_of(const runtime::ModelState& state, const TextPart& part) {
  const base::BindJsonMemory within(state.options.memory_budget);
  const std::string& folder = state.folder.component(part.tokenizer).folder;
  TextReader reader{tokenizer::open_tokenizer(folder)};
  if (part.chat != models::TextChat::none)
    reader.chat =
        std::make_shared<const jinja::ChatPrompt>(folder, part.chat == models::TextChat::thinking);
  return reader;
}

TextBatch tokens_of(TextPart& part, const TextReader& reader,
                    const std::vector<std::string>& prompts, std::vector<std::string>& notes) {
  const int64_t longest = reader.tokenizer->longest();
  if (part.as_tokenizer && longest > 0) part.tokens = std::min(longest, kMostTextTokens);
  TextBatch batch{{}, {}, part.tokens};
  int64_t longer = 0;
  std::string message;
  for (const std::string& prompt : prompts) {
    const auto encoded = reader.tokenizer->encode_padded(reader.text(prompt), part.tokens);
    if (encoded.cut > 0 && longer++ == 0)
      message =
          fmt::format("{} reads {} tokens, and a prompt has {} more: it does not see {}",
                      part.encoder, part.tokens, encoded.cut, unseen(reader, prompt, part.tokens));
    batch.ids.insert(batch.ids.end(), encoded.ids.begin(), encoded.ids.end());
    batch.visible.push_back(std::count(encoded.mask.begin(), encoded.mask.end(), 1));
  }
  if (part.trimmed) trim(batch);
  if (longer > 1) message += fmt::format(" (and {} more prompts are longer)", longer - 1);
  if (longer > 0) notes.push_back(message);
  return batch;
}

namespace {

// The pipeline's parts, with the request's number of tokens.
std::vector<TextPart> parts_of(const runtime::ModelState& state, const GenerateRequest& request) {
  require(request.text_tokens >= 0 && request.text_tokens <= kMostTextTokens, ErrorCode::usage,
          "`text_tokens` {}: expected a number from 1 to {}", request.text_tokens, kMostTextTokens);
  std::vector<TextPart> parts = state.spec->text_parts;
  bool adjusted = request.text_tokens == 0;
  for (TextPart& part : parts) {
    if (part.adjustable && request.text_tokens > 0) part.tokens = request.text_tokens;
    adjusted |= part.adjustable;
  }
  require(adjusted || parts.empty(), ErrorCode::usage,
          "`text_tokens` {}: '{}' takes texts of one length", request.text_tokens, state.name);
  return parts;
}

}  // namespace

std::vector<Text> cut_texts(const runtime::ModelState& state, const GenerateRequest& request,
                            bool two, std::vector<std::string>& notes) {
  require(!request.prompts.empty(), ErrorCode::usage,
          "what to make is missing: '{}' takes text, give `prompt` T", state.name);
  const std::vector<TextPart> parts = parts_of(state, request);
  require(!parts.empty(), ErrorCode::usage, "'{}' takes no prompt", state.name);
  std::vector<std::string> prompts = request.prompts;
  if (two)
    prompts.push_back(state.spec->empty_negative ? "" : request.negative_prompt.value_or(""));
  prompts = cleaned_prompts(*state.spec, prompts, request.clean_caption.value_or(true), notes);
  std::vector<Text> texts;
  for (const TextPart& part : parts) {
    Text text{part, {{}, {}, part.tokens}};
    text.there = !part.optional || state.folder.has(part.encoder) ||
                 state.folder.absent.contains(part.encoder);
    if (text.there) {
      check_there(state, part);
      text.batch = tokens_of(text.part, reader_of(state, part), prompts, notes);
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

Embeddings predict_texts(const runtime::ModelState& state, std::vector<Text>& texts, bool two,
                         std::vector<std::string>& notes) {
  int64_t held_bytes = 0;  // bytes of the previous encoders
  std::vector<TextStates> all_states;
  for (Text& text : texts) {
    TextStates& zeros = all_states.emplace_back();
    if (!text.there) continue;
    const bool weights = load::has_weights(state.folder.component(text.part.encoder));
    const std::string message = weights ? state.check_text_encoder(text.part.encoder) : "";
    if (!message.empty()) notes.push_back(message);
    TextStates states = predict(state, text);
    text.need.peak += held_bytes;
    text.need.ranks.front() += held_bytes;
    if (state.options.keep_parts) text.need.kept = packed_bytes(state, text.part);
    for (const Tensor* x : states.all())
      if (x->defined()) held_bytes += x->bytes();
    zeros = zeros_of(states);
  }
  return embeddings_of(*state.spec, texts, all_states, two);
}

std::vector<Text> usual_texts(const runtime::ModelState& state, const GenerateRequest& request,
                              int count) {
  std::vector<Text> texts;
  for (const TextPart& part : parts_of(state, request)) {
    if (count == 0) break;
    Text& text = texts.emplace_back(Text{part, {}});
    text.there = state.folder.has(part.encoder);
    if (!text.there) continue;
    text.batch = usual_batch(state, part, part.adjustable && request.text_tokens > 0, count);
    text.part.tokens = text.batch.length;
    predict(state, text);
  }
  return texts;
}

nn::Conditioning conditioning_of(const runtime::ModelState& state, const GenerateRequest& request,
                                 const Embeddings& embeddings, const Job& job) {
  const models::PipelineSpec& spec = *state.spec;
  const Branches branches = branches_of(spec, request, job.planned.guidance_asked);
  nn::Conditioning conditioning = text_conditioning(spec, embeddings, request.count, branches.two);
  const int64_t factor = state.vae_factor();
  if (spec.add_conditions)
    spec.add_conditions({.batch = int64_t{job.samples()} * (branches.two ? 2 : 1),
                         .height = job.planned.layout.size[1] * factor,
                         .width = job.planned.layout.size[2] * factor,
                         .guidance = branches.embedded},
                        conditioning);
  return conditioning;
}

}  // namespace tessera::diffusion
