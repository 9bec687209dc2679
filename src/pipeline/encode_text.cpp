#include "pipeline/encode_text.h"

#include <algorithm>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"
#include "base/stopwatch.h"
#include "load/held_weights.h"
#include "ops/elementwise.h"
#include "ops/finite.h"
#include "pipeline/agree.h"
#include "pipeline/denoise.h"
#include "pipeline/rehearse.h"
#include "pipeline/spread_text.h"
#include "tokenizer/caption.h"
#include "tokenizer/folder.h"

namespace tessera::pipeline {
namespace {

using models::EncodedText;
using models::PipelineSpec;
using models::TextBatch;
using models::TextPart;
using models::TextStates;
using tensor::DType;
using tensor::Tensor;

Tensor mask_of(const TextBatch& batch) {
  std::vector<int32_t> ones(batch.ids.size(), 0);
  for (int64_t r = 0; r < batch.texts(); ++r)
    std::fill_n(ones.begin() + r * batch.length, batch.visible[static_cast<size_t>(r)], 1);
  return Tensor::from(std::span<const int32_t>(ones), {batch.texts(), batch.length});
}

void check_there(const ModelState& state, const TextPart& part) {
  for (const std::string& name : {part.tokenizer, part.encoder}) {
    if (state.folder.absent.contains(name))
      state.folder.component(name, "; without it only --embeddings FILE replaces a prompt");
    else
      require(state.folder.has(name), ErrorCode::model,
              "'{}' has no {}, so it takes no prompt: add the folder '{}' of the published model, "
              "or give --embeddings FILE",
              state.name, name, name);
  }
}

// What an encoder sees of texts: of padding, too, if it is not masked.
TextBatch seen(const Text& text) {
  TextBatch batch = text.batch;
  if (!text.part.masked) std::fill(batch.visible.begin(), batch.visible.end(), batch.length);
  return batch;
}

TextStates on_host(TextStates states) {
  for (Tensor* x : {&states.last, &states.previous, &states.pooled, &states.projected})
    if (x->defined()) *x = pipeline::on_host(*x);
  return states;
}

void check_vocabulary(const ModelState& state, const Text& text,
                      const models::TextEncoder& encoder) {
  const int32_t largest = *std::max_element(text.batch.ids.begin(), text.batch.ids.end());
  require(largest < encoder.vocabulary(), ErrorCode::model,
          "'{}': the {} gives token {}, the {} knows {}; they do not belong together", state.name,
          text.part.tokenizer, largest, text.part.encoder, encoder.vocabulary());
  require(encoder.longest() == 0 || text.part.tokens <= encoder.longest(), ErrorCode::usage,
          "{} tokens of text: the {} of '{}' takes at most {}", text.part.tokens, text.part.encoder,
          state.name, encoder.longest());
}

// The same of the ranks that share its layers, as this process has them.
TextStates foresee_spread(const ModelState& state, Text& text) {
  ModelState stage;
  set_stage(state, state.options, stage);
  const RunMeters meters(stage.workers.ranks.size());
  Report did;
  const TextStates states =
      encode_spread(stage, text.part.encoder, seen(text), 0, meters, base::current_stop(), did);
  std::vector<int64_t> weights;
  text.need.ranks.clear();
  for (const Report::Rank& rank : did.per_rank) {
    weights.push_back(rank.peak_bytes.weights);
    text.need.ranks.push_back(rank.peak_bytes.total);
  }
  text.need.weights = together(state.options, weights);
  text.need.peak = together(state.options, text.need.ranks);
  text.need.activations = text.need.peak - text.need.weights;
  text.need.work = meters.all->entries();
  return states;
}

// A run of an encoder on meta: what it gives, and in text.need what it takes.
TextStates foresee(const ModelState& state, Text& text) {
  const RunMeters meters;
  tensor::Scope scope;
  scope.memory = meters.memory;
  scope.meter = meters.all;
  const tensor::BindScope bind(scope);
  const auto weights = meta_weights_of(state, text.part.encoder);
  const auto encoder = encoder_over(state, text.part.encoder, weights);
  check_vocabulary(state, text, *encoder);
  const TextStates states = encoder->encode(seen(text));
  text.need = {meters.memory->peak(tensor::MemoryClass::weights),
               meters.memory->peak(tensor::MemoryClass::activations), meters.memory->peak(),
               weights->parameters() * size_of(state.dtype()), meters.all->entries()};
  text.need.ranks = {text.need.peak};
  return state.options.plan.shard > 1 ? foresee_spread(state, text) : states;
}

// Bytes of all weights of an encoder at once, packed as a run of one token packs them.
int64_t packed_bytes(const ModelState& state, const std::string& part) {
  const RunMeters meters;
  tensor::Scope scope;
  scope.memory = meters.memory;
  const tensor::BindScope bind(scope);
  auto meta = meta_weights_of(state, part);
  const auto held = std::make_shared<const load::HeldWeights>(meta);
  const bool spread = state.options.plan.shard > 1;
  models::LayerWeights layers;
  if (spread) layers = [&](int64_t) { return meta; };
  encoder_over(state, part, held)->encode({{0}, {1}, 1}, {}, layers);
  const int64_t whole = meters.memory->current(tensor::MemoryClass::weights);
  return whole + (spread ? spread_bytes(state, part) : 0);
}

// So many texts of the length that a part reads; a tokenizer may shorten it to what fits.
TextBatch usual_batch(const ModelState& state, const TextPart& part, int texts) {
  tensor::Scope aside;
  const tensor::BindScope rehearsal(aside);
  const int64_t longest =
      encoder_over(state, part.encoder, meta_weights_of(state, part.encoder))->longest();
  const int64_t tokens = longest > 0 ? std::min(part.tokens, longest) : part.tokens;
  const auto count = static_cast<size_t>(texts);
  return {std::vector<int32_t>(count * static_cast<size_t>(tokens), 0),
          std::vector<int64_t>(count, tokens), tokens};
}

// Of the same shape.
TextStates zeros_of(TextStates states) {
  for (Tensor* x : {&states.last, &states.previous, &states.pooled, &states.projected})
    if (x->defined()) *x = Tensor::zeros(x->shape(), x->dtype());
  return states;
}

// Rows [begin, end) of what the parts gave, by the names of the pipeline's embeddings.
void put(const PipelineSpec& spec, const std::vector<EncodedText>& texts, int64_t begin,
         int64_t end, const std::string& before, Embeddings& found) {
  std::vector<EncodedText> rows = texts;
  for (EncodedText& text : rows)
    for (Tensor* x : {&text.states.last, &text.states.previous, &text.states.pooled,
                      &text.states.projected, &text.mask})
      if (x->defined()) *x = x->slice(0, begin, end).contiguous();
  for (const auto& [name, x] : spec.embeddings(rows, end - begin)) found[before + name] = x;
}

// What encoders, or those that stand for them, make of texts; with `two` the last one is negative.
template <class Texts, class Encode>
Embeddings embeddings_of(const PipelineSpec& spec, Texts& texts, bool two, const Encode& encode) {
  std::vector<EncodedText> encoded;
  int64_t count = 0;
  for (auto& text : texts) {
    encoded.push_back({text.there ? encode(text) : TextStates(), {}, text.part.tokens});
    if (!text.there) continue;
    encoded.back().mask = mask_of(text.batch);
    count = text.batch.texts() - (two ? 1 : 0);
  }
  Embeddings found;
  put(spec, encoded, 0, count, "", found);
  if (two) put(spec, encoded, count, count + 1, "negative_", found);
  return found;
}

// The words of a prompt behind those that fit into so many tokens.
std::string unseen(const tokenizer::Tokenizer& tokenizer, const std::string& prompt,
                   int64_t length) {
  std::vector<size_t> ends;  // of words
  for (size_t i = 1; i <= prompt.size(); ++i)
    if (prompt[i - 1] != ' ' && (i == prompt.size() || prompt[i] == ' ')) ends.push_back(i);
  const auto over = std::partition_point(ends.begin(), ends.end(), [&](size_t end) {
    return std::ssize(tokenizer.encode(std::string_view(prompt).substr(0, end))) <= length;
  });
  const size_t seen = over == ends.begin() ? 0 : *std::prev(over);
  return prompt.substr(std::min(prompt.find_first_not_of(' ', seen), prompt.size()));
}

// What an encoder makes of texts on the one rank that this process has for it.
TextStates encode_alone(const ModelState& state, const Text& text, bool keep) {
  const std::string& part = text.part.encoder;
  std::shared_ptr<const nn::Weights> weights = state.weights_of(part);
  std::shared_ptr<const load::HeldWeights> held;
  if (keep) weights = held = std::make_shared<const load::HeldWeights>(weights);
  const auto encoder = state.load_text_encoder(part, weights);
  TextStates states = on_host(numbers_of(*encoder, seen(text), part));
  if (keep) state.kept.keep(part, held->values(), text.need.kept);
  return states;
}

}  // namespace

std::vector<std::string> cleaned_prompts(const PipelineSpec& spec, std::vector<std::string> prompts,
                                         bool clean, std::vector<std::string>& notes) {
  clean = clean && spec.cleans_captions;
  for (std::string& prompt : prompts) {
    if (!clean) {
      if (spec.plain_prompt) prompt = spec.plain_prompt(prompt);
      continue;
    }
    const tokenizer::CleanCaption made = tokenizer::clean_caption(prompt);
    if (made.text.empty() && !prompt.empty())
      notes.push_back(fmt::format(
          "cleaning leaves nothing of the prompt {}: this model's pipeline takes out Chinese "
          "characters, addresses, names of files and more; --clean-caption off keeps them",
          base::printable(prompt)));
    if (made.misread)
      notes.push_back(
          fmt::format("the prompt {} looks like UTF-8 that was read in another encoding; it stays "
                      "as it is, where "
                      "diffusers with ftfy may repair it",
                      base::printable(prompt)));
    prompt = made.text;
  }
  return prompts;
}

TextBatch tokens_of(const ModelState& state, TextPart& part,
                    const std::vector<std::string>& prompts, std::vector<std::string>& notes) {
  const auto tokenizer = tokenizer::open_tokenizer(state.folder.component(part.tokenizer).folder);
  if (part.as_tokenizer && tokenizer->longest() > 0)
    part.tokens = std::min(tokenizer->longest(), kMostTextTokens);
  TextBatch batch{{}, {}, part.tokens};
  int64_t longer = 0;
  std::string said;
  for (const std::string& prompt : prompts) {
    const auto encoded = tokenizer->encode_padded(prompt, part.tokens);
    if (encoded.cut > 0 && longer++ == 0)
      said = fmt::format("{} reads {} tokens, and a prompt has {} more: it does not see {}",
                         part.encoder, part.tokens, encoded.cut,
                         base::printable(unseen(*tokenizer, prompt, part.tokens)));
    batch.ids.insert(batch.ids.end(), encoded.ids.begin(), encoded.ids.end());
    batch.visible.push_back(std::count(encoded.mask.begin(), encoded.mask.end(), 1));
  }
  if (longer > 1) said += fmt::format(" (and {} more prompts are longer)", longer - 1);
  if (longer > 0) notes.push_back(said);
  return batch;
}

std::vector<Text> cut_texts(const ModelState& state, const GenerateRequest& request, bool two,
                            std::vector<std::string>& notes) {
  require(!request.prompts.empty(), ErrorCode::usage,
          "what to make is missing: '{}' takes text, give --prompt T", state.name);
  require(request.text_tokens >= 0 && request.text_tokens <= kMostTextTokens, ErrorCode::usage,
          "--text-tokens {}: expected a number from 1 to {}", request.text_tokens, kMostTextTokens);
  std::vector<std::string> prompts = request.prompts;
  if (two) prompts.push_back(request.negative_prompt.value_or(""));
  prompts = cleaned_prompts(*state.spec, prompts, request.clean_caption.value_or(true), notes);
  std::vector<Text> texts;
  bool adjusted = request.text_tokens == 0;
  for (TextPart part : state.spec->text_parts) {
    if (part.adjustable && request.text_tokens > 0) part.tokens = request.text_tokens;
    adjusted |= part.adjustable;
    Text text{part, {{}, {}, part.tokens}};
    text.there = !part.optional || state.folder.has(part.encoder) ||
                 state.folder.absent.contains(part.encoder);
    if (text.there) {
      check_there(state, part);
      text.batch = tokens_of(state, text.part, prompts, notes);
    }
    texts.push_back(std::move(text));
  }
  require(!texts.empty(), ErrorCode::usage, "'{}' takes no prompt", state.name);
  require(adjusted, ErrorCode::usage, "--text-tokens {}: '{}' takes texts of one length",
          request.text_tokens, state.name);
  return texts;
}

Embeddings foresee_texts(const ModelState& state, std::vector<Text>& texts, bool two,
                         std::vector<std::string>& notes) {
  int64_t held = 0;  // of the encoders before
  return embeddings_of(*state.spec, texts, two, [&](Text& text) {
    const bool weights = load::has_weights(state.folder.component(text.part.encoder).folder);
    const std::string said = weights ? state.check_text_encoder(text.part.encoder) : "";
    if (!said.empty()) notes.push_back(said);
    const TextStates states = foresee(state, text);
    text.need.peak += held;
    text.need.ranks.front() += held;
    if (state.options.keep_parts) text.need.kept = packed_bytes(state, text.part.encoder);
    for (const Tensor& x : {states.last, states.previous, states.pooled, states.projected})
      if (x.defined()) held += x.bytes();
    return zeros_of(states);
  });
}

Embeddings encode_texts(const ModelState& state, bool two, const RunControl& control, Job& job) {
  const base::Stopwatch clock;
  const bool spread = state.options.plan.shard > 1, first = first_process(state.options);
  const RunMeters meters = job.meters.anew();
  std::vector<TextStates> made;
  for (const Text& text : job.texts) {
    const auto i = static_cast<int>(made.size()), count = static_cast<int>(job.texts.size());
    TextStates& states = made.emplace_back();
    if (!text.there) continue;
    between_encoders(state, [&] {
      require(!control.stop.stop_requested(), ErrorCode::cancelled,
              "stopped before text encoder {}", i + 1);
      if (first && control.on_progress)
        control.on_progress({Phase::encode, i, count, clock.seconds()});
    });
    states = spread ? encode_spread(state, text.part.encoder, seen(text),
                                    job.keeps_text ? text.need.kept : 0, meters, control.stop,
                                    job.encoded)
                    : encode_alone(state, text, job.keeps_text);
  }
  if (!spread) job.encoded.per_rank = {work_of(state.workers.scope(-1, &job.meters), 0)};
  Embeddings found;
  between_encoders(state, [&] {
    if (!first) return;
    found = embeddings_of(*state.spec, job.texts, two, [&](const Text& text) {
      return made[static_cast<size_t>(&text - job.texts.data())];
    });
  });
  return found;
}

std::vector<Text> usual_texts(const ModelState& state, int count) {
  std::vector<Text> texts;
  for (const TextPart& part : state.spec->text_parts) {
    if (count == 0) break;
    Text& text = texts.emplace_back(Text{part, {}});
    text.there = state.folder.has(part.encoder);
    if (!text.there) continue;
    text.batch = usual_batch(state, part, count);
    text.part.tokens = text.batch.length;
    foresee(state, text);
  }
  return texts;
}

std::shared_ptr<const load::MetaWeights> meta_weights_of(const ModelState& state,
                                                         const std::string& part) {
  const load::Component& found = state.folder.component(part);
  return load::has_weights(found.folder)
             ? std::make_shared<const load::MetaWeights>(load::open_weights(found))
             : std::make_shared<const load::MetaWeights>();
}

std::unique_ptr<models::TextEncoder> encoder_over(
    const ModelState& state, const std::string& part,
    const std::shared_ptr<const nn::Weights>& weights) {
  const load::Component& found = state.folder.component(part);
  return models::text_encoder_of(found.class_name, {found.config, found.folder + "/config.json"},
                                 weights, state.dtype());
}

TextStates numbers_of(const models::TextEncoder& encoder, const TextBatch& batch,
                      const std::string& part, const models::LayerWeights& from) {
  const auto watch = [&](const std::string& name, const Tensor& x) {
    if (x.device() == tensor::Device::cpu) ops::require_finite(x, part + "'s '" + name + "'");
  };
  const TextStates states = encoder.encode(batch, watch, from);
  for (const Tensor& x : {states.last, states.previous, states.pooled, states.projected})
    ops::require_finite(x, part + "'s end");
  return states;
}

std::map<std::string, Tensor> forward_text(const ModelState& state, const std::string& component,
                                           const std::map<std::string, Tensor>& inputs, bool trace,
                                           const RunControl& control) {
  const auto ids = inputs.find("input_ids"), mask = inputs.find("attention_mask");
  require(ids != inputs.end() && ids->second.rank() == 2 && ids->second.elements() > 0,
          ErrorCode::usage, "{} takes whole numbers input_ids [batch, length]", component);
  const int64_t texts = ids->second.size(0), length = ids->second.size(1);
  TextBatch batch{{}, std::vector<int64_t>(static_cast<size_t>(texts), length), length};
  for (const int64_t id : ids->second.to_ints())
    batch.ids.push_back(static_cast<int32_t>(std::clamp<int64_t>(id, -1, 1 << 30)));
  if (mask != inputs.end()) {
    require(mask->second.shape() == ids->second.shape(), ErrorCode::usage,
            "'attention_mask' is {}; expected {}", mask->second.shape().str(),
            ids->second.shape().str());
    const auto values = mask->second.to_ints();
    for (int64_t r = 0; r < texts; ++r) {
      const auto first = values.begin() + r * length, last = first + length;
      const auto zero = std::find(first, last, 0);
      require(std::all_of(first, zero, [](int64_t v) { return v == 1; }) &&
                  std::all_of(zero, last, [](int64_t v) { return v == 0; }),
              ErrorCode::usage, "'attention_mask' of text {}: expected ones, then zeros", r);
      batch.visible[static_cast<size_t>(r)] = zero - first;
    }
  }
  std::map<std::string, Tensor> outputs;
  models::TextTrace watch;
  if (trace)
    watch = [&](const std::string& name, const Tensor& x) {
      outputs[name] = on_host(ops::cast(x, DType::f32));
    };
  if (const std::string said = state.check_text_encoder(component);
      control.on_note && !said.empty())
    control.on_note(said);
  const auto encoder = state.load_text_encoder(component, state.weights_of(component));
  const TextStates states = on_host(encoder->encode(batch, watch));
  outputs["last_hidden_state"] = ops::cast(states.last, DType::f32);
  if (states.projected.defined())
    outputs["text_embeds"] = states.projected;
  else if (states.pooled.defined())
    outputs["pooler_output"] = states.pooled;
  return outputs;
}

}  // namespace tessera::pipeline
