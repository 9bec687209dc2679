#include "models/text/text_encoder.h"

#include <algorithm>

#include "base/fail.h"
#include "ops/elementwise.h"
#include "ops/norm.h"

namespace tessera::models {

using tensor::Tensor;

namespace {

// Number of layers before a hidden state.
int64_t place_of(int number, int64_t layers) { return number < 0 ? layers + 1 + number : number; }

}  // namespace

std::vector<int32_t> TextBatch::places() const {
  std::vector<int32_t> place(ids.size());
  for (size_t t = 0; t < place.size(); ++t)
    place[t] = static_cast<int32_t>(t % static_cast<size_t>(length));
  return place;
}

TextEncoder::TextEncoder(std::shared_ptr<const nn::Weights> weights, std::string prefix,
                         tensor::DType dtype)
    : weights_(std::move(weights)), prefix_(std::move(prefix)), dtype_(dtype) {}

TextStates TextEncoder::encode(const TextBatch& batch, const TextTrace& trace,
                               const LayerWeights& from) const {
  require(batch.length >= 1 && batch.texts() >= 1 &&
              static_cast<int64_t>(batch.ids.size()) == batch.texts() * batch.length,
          ErrorCode::usage, "{} token ids for {} texts of {} tokens", batch.ids.size(),
          batch.texts(), batch.length);
  require(longest() == 0 || batch.length <= longest(), ErrorCode::usage,
          "{} tokens of text; this text encoder takes at most {}", batch.length, longest());
  for (const int32_t id : batch.ids)
    require(id >= 0 && id < vocabulary(), ErrorCode::usage,
            "token {}: the text encoder knows ids from 0 to {}", id, vocabulary() - 1);
  for (const int64_t visible : batch.visible)
    require(visible >= 0 && visible <= batch.length, ErrorCode::usage, "{} of {} tokens are text",
            visible, batch.length);
  const int64_t count = layers_for(batch.hidden);
  const tensor::PageReuse reuse;
  Tensor x = embed(batch), previous;
  const TextSight text_sight = sight(batch);
  std::vector<Tensor> hidden_states(batch.hidden.size());
  const auto show = [&](int64_t i) {
    if (trace) trace(fmt::format("hidden.{}", i), by_rows(x, batch));
    for (size_t c = 0; c < hidden_states.size(); ++c)
      if (place_of(batch.hidden[c], layers()) == i) hidden_states[c] = x;
  };
  for (int64_t i = 0; i < count; ++i) {
    show(i);
    previous = x;
    x = layer(i, from ? *from(i) : *weights_, x, batch, text_sight);
  }
  show(count);
  if (hidden_states.empty()) return finish(x, previous, batch);
  TextStates states{};
  states.chosen = by_rows(
      hidden_states.size() == 1 ? hidden_states.front() : ops::concat_columns(hidden_states),
      batch);
  return states;
}

int64_t TextEncoder::layers_for(const std::vector<int>& hidden) const {
  int64_t most = 0;
  for (const int number : hidden) {
    const int64_t place = place_of(number, layers());
    require(place >= 0 && place < layers(), ErrorCode::model,
            "a text encoder of {} layers has no hidden state {} before its last one", layers(),
            number);
    most = std::max(most, place);
  }
  return hidden.empty() ? layers() : most;
}

void TextEncoder::ask(int64_t index, const nn::Weights& weights) const {
  const TextBatch one_token{{0}, {1}, 1};
  (void)layer(index, weights, embed(one_token), one_token, sight(one_token));
}

TextStates TextEncoder::finish(const Tensor& x, const Tensor&, const TextBatch& batch) const {
  return {.last = by_rows(x, batch), .previous = {}, .pooled = {}, .projected = {}};
}

Tensor TextEncoder::layer_norm(const nn::Weights& from, const Tensor& x, const std::string& name,
                               double eps) const {
  const int64_t width = x.size(1);
  return ops::layer_norm(x, {.weight = from.vector(prefix_ + name + ".weight", width),
                             .bias = from.vector(prefix_ + name + ".bias", width),
                             .eps = static_cast<float>(eps)});
}

nn::Linear TextEncoder::linear(const nn::Weights& from, const std::string& name, int64_t n,
                               int64_t k, bool bias) const {
  return nn::Linear(from, prefix_ + name, n, k, dtype_, {.bias = bias});
}

Tensor TextEncoder::look_up(const std::string& name, int64_t count, int64_t width,
                            const std::vector<int32_t>& ids, tensor::DType out) const {
  return ops::gather_rows(weights_->get(prefix_ + name, {count, width}), ids, out);
}

void check_heads(int64_t width, int64_t heads, const std::string& where) {
  require(width % heads == 0 && width / heads <= 512, ErrorCode::model,
          "{}: {} heads do not fit a width of {}", where, heads, width);
}

Tensor by_rows(const Tensor& x, const TextBatch& batch) {
  return x.reshape({batch.texts(), batch.length, x.size(1)});
}

}  // namespace tessera::models
