#pragma once

#include <map>
#include <string>

#include "runtime/model_state.h"

namespace tessera::pipeline {

/// A full forward pass of a language model, under the reference's argument names: input_ids [batch,
/// tokens] or [tokens] -> `logits` f32 [..., vocabulary], equal to `out`; with `trace` also
/// hidden.0 (the embedding) to hidden.N (after the last block, before the last norm). Optional:
/// attention_mask [batch, tokens], ones and then zeros (logits of the zeros are zeros), or [batch,
/// 1, tokens, tokens] for block-causal models, with the block length; position_ids from 0.
/// Bidirectional models see all tokens of a sequence, block-causal models see blocks at multiples
/// of their configuration's block_length. Throws Error(usage) for invalid tensors.
std::map<std::string, tensor::Tensor> forward_tokens(
    runtime::ModelState& state, const std::map<std::string, tensor::Tensor>& inputs, bool trace,
    const std::stop_token& stop);

}  // namespace tessera::pipeline
