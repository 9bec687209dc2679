#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "diffusion/job.h"
#include "load/meta_weights.h"

namespace tessera::diffusion {

/// Ranks of a plan that encode texts: those of shard= that rank 0 is one of, else it alone.
std::vector<int> encoding_ranks(const Plan& plan);
/// Whether this process runs text encoders: of ranks that are processes the first one does, and
/// under shard= those that have its weights with it.
bool encodes_text(const runtime::ModelState& state);
/// What a process does between encoders that ranks run together: under shard= all throw what one of
/// them fails at, by its name, and nobody waits for it.
void between_encoders(const runtime::ModelState& state, const std::function<void()>& work);

/// The batch of a text as its encoder sees it: padding counts where the encoder masks none.
models::TextBatch seen(const Text& text);
/// All of them in the memory of the host.
models::TextStates on_host(models::TextStates states);
/// Weights of a text encoder that hold nothing, of a folder that may hold a description alone.
std::shared_ptr<const load::MetaWeights> meta_weights_of(const runtime::ModelState& state,
                                                         const std::string& part);
/// A text encoder of the folder over weights, whose names are not checked.
std::unique_ptr<models::TextEncoder> encoder_over(
    const runtime::ModelState& state, const std::string& part,
    const std::shared_ptr<const nn::Weights>& weights);
/// What an encoder makes of texts, every layer of it in numbers: else it throws Error(model).
models::TextStates numbers_of(const models::TextEncoder& encoder, const models::TextBatch& batch,
                              const std::string& part, const models::LayerWeights& from = {});

/// Runs a text encoder on "input_ids" and, if there, "attention_mask" [batch, length] ->
/// "last_hidden_state", "text_embeds" or "pooler_output", with `trace` also "hidden.N". Throws
/// Error(usage) for inputs that do not fit.
std::map<std::string, tensor::Tensor> forward_text(
    const runtime::ModelState& state, const std::string& component,
    const std::map<std::string, tensor::Tensor>& inputs, bool trace, const RunControl& control,
    const runtime::Adapters* adapters = nullptr);

}  // namespace tessera::diffusion
