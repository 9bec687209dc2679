#include "diffusion/text_encoders.h"

#include <algorithm>

#include "base/fail.h"
#include "cluster/agree.h"
#include "load/weights_file.h"
#include "ops/elementwise.h"
#include "ops/finite.h"

namespace tessera::diffusion {

using models::TextBatch;
using models::TextStates;
using tensor::DType;
using tensor::Tensor;

std::vector<int> encoding_ranks(const Plan& plan) {
  const std::string_view axis[] = {"shard"};
  return parallel::mesh_of(plan).group(0, axis);
}

bool encodes_text(const runtime::ModelState& state) {
  const std::vector<int> ranks = encoding_ranks(state.options.plan);
  return std::ranges::any_of(ranks, [&](int rank) { return state.ranks().here(rank); });
}

void between_encoders(const runtime::ModelState& state, const std::function<void()>& work) {
  state.options.plan.shard > 1 ? state.ranks().all_or_none("encodes", work) : work();
}

TextBatch encoder_batch(const Text& text) {
  TextBatch batch = text.batch;
  batch.hidden = text.part.hidden;
  if (!text.part.masked) std::fill(batch.visible.begin(), batch.visible.end(), batch.length);
  return batch;
}

TextStates on_host(TextStates states) {
  for (Tensor* x : states.all())
    if (x->defined()) *x = runtime::on_host(*x);
  return states;
}

std::shared_ptr<const load::MetaWeights> meta_weights_of(const runtime::ModelState& state,
                                                         const std::string& part) {
  (void)state.folder.component(part);
  return state.meta_weights_of(part);
}

std::unique_ptr<models::TextEncoder> encoder_over(
    const runtime::ModelState& state, const std::string& part,
    const std::shared_ptr<const nn::Weights>& weights) {
  const load::Component& component = state.folder.component(part);
  return models::text_encoder_of(component.class_name, {component.config, component.description()},
                                 weights, state.dtype());
}

TextStates numbers_of(const models::TextEncoder& encoder, const TextBatch& batch,
                      const std::string& part, const models::LayerWeights& from) {
  const auto watch = [&](const std::string& name, const Tensor& x) {
    if (x.device() == tensor::Device::cpu) ops::require_finite(x, part + "'s '" + name + "'");
  };
  TextStates states = encoder.encode(batch, watch, from);
  for (const Tensor* x : states.all()) ops::require_finite(*x, part + "'s end");
  return states;
}

std::map<std::string, Tensor> forward_text(const runtime::ModelState& state,
                                           const std::string& component,
                                           const std::map<std::string, Tensor>& inputs, bool trace,
                                           const RunControl& control,
                                           const runtime::Adapters* adapters) {
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
      outputs[name] = runtime::on_host(ops::cast(x, DType::f32));
    };
  if (const std::string message = state.check_text_encoder(component);
      control.on_note && !message.empty())
    control.on_note(message);
  auto weights = state.weights_of(component);
  if (adapters) weights = adapters->over(component, weights, state.device());
  const auto encoder = state.load_text_encoder(component, weights);
  const TextStates states = on_host(encoder->encode(batch, watch));
  outputs["last_hidden_state"] = ops::cast(states.last, DType::f32);
  if (states.projected.defined())
    outputs["text_embeds"] = states.projected;
  else if (states.pooled.defined())
    outputs["pooler_output"] = states.pooled;
  return outputs;
}

}  // namespace tessera::diffusion
