#pragma once

#include <functional>
#include <vector>

#include "nn/block_stack.h"
#include "parallel/setup.h"
#include "sample/decode.h"

namespace tessera::parallel {

/// Masked diffusion decoding of a language model under any plan: each rank computes its tokens of
/// a pass, and all receive the logits of the decided tokens, bit by bit the same. Ranks stop
/// together at rank 0's control.stop, or when a rank fails by its own stop. Joining prompts must
/// be equal on all ranks. Otherwise as sample::decode; errors name the first block with NaN or
/// infinity.
std::vector<sample::Decoded> decode(const nn::TokenModel& model,
                                    const std::vector<sample::TokenPrompt>& prompts,
                                    const sample::DecodingPolicy& policy,
                                    const sample::SpecialIds& special, Setup& setup,
                                    const sample::DecodeControl& control = {});

/// A pass: logits f32 [tokens of pass.decide, vocabulary], on every rank. `watch` receives the
/// hidden states of the rank's tokens after each block, 0 being the embedding; may throw.
tensor::Tensor forward(const nn::TokenModel& model, const sample::TokenPass& pass, Setup& setup,
                       const std::function<void(int blocks, const tensor::Tensor& stream)>& watch);

}  // namespace tessera::parallel
