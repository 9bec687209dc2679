#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "diffusion/job.h"
#include "load/meta_weights.h"

namespace tessera::diffusion {

/// The ranks of a plan that encode texts: rank 0's group of shard=, or rank 0 alone.
std::vector<int> encoding_ranks(const Plan& plan);
/// Whether this process runs text encoders. If ranks are processes, the first process encodes, and
/// with shard= also those that share its weights.
bool encodes_text(const runtime::ModelState& state);
/// Runs a process's work between encoders that ranks run together. Under shard= all processes throw
/// the error of any process, with its rank, so that none waits for the failed process.
void between_encoders(const runtime::ModelState& state, const std::function<void()>& work);

/// The batch of a text in the encoder's view: if the encoder has no mask, padding counts as text.
models::TextBatch encoder_batch(const Text& text);
/// Copies all states to the memory of the host.
models::TextStates on_host(models::TextStates states);
/// Weights of a text encoder on meta, for a folder that may hold only a description.
std::shared_ptr<const load::MetaWeights> meta_weights_of(const runtime::ModelState& state,
                                                         const std::string& part);
/// A text encoder of the folder over weights; does not check their names.
std::unique_ptr<models::TextEncoder> encoder_over(
    const runtime::ModelState& state, const std::string& part,
    const std::shared_ptr<const nn::Weights>& weights);
/// Runs an encoder on texts. Throws Error(model) if any layer's states hold NaN or infinity.
models::TextStates numbers_of(const models::TextEncoder& encoder, const models::TextBatch& batch,
                              const std::string& part, const models::LayerWeights& from = {});

/// Runs a text encoder on "input_ids" and, if there, "attention_mask" [batch, length]. Returns
/// "last_hidden_state", "text_embeds" or "pooler_output", with `trace` also "hidden.N". Throws
/// Error(usage) for invalid inputs.
std::map<std::string, tensor::Tensor> forward_text(
    const runtime::ModelState& state, const std::string& component,
    const std::map<std::string, tensor::Tensor>& inputs, bool trace, const RunControl& control,
    const runtime::Adapters* adapters = nullptr);

}  // namespace tessera::diffusion
