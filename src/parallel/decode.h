#pragma once

#include <functional>
#include <vector>

#include "nn/block_stack.h"
#include "parallel/setup.h"
#include "sample/decode.h"

namespace tessera::parallel {

/// Masked diffusion decoding of a language model under any plan: each rank runs its own tokens of a
/// pass, and all get the logits of the tokens that the pass decides, the same bits. Ranks
/// stop together when rank 0's control.stop asks, or when one fails because its own does. Prompts
/// that join must be the same on all ranks. Otherwise as sample::decode; a block that leaves no
/// numbers is named.
std::vector<sample::Decoded> decode(const nn::TokenModel& model,
                                    const std::vector<sample::TokenPrompt>& prompts,
                                    const sample::DecodingPolicy& policy,
                                    const sample::SpecialIds& special, Setup& setup,
                                    const sample::DecodeControl& control = {});

/// One pass: logits f32 [tokens of pass.decide, vocabulary], on every rank. `watch` gets the stream
/// of the rank's tokens after so many blocks, from 0 (the embedding) on; it may throw.
tensor::Tensor forward(const nn::TokenModel& model, const sample::TokenPass& pass, Setup& setup,
                       const std::function<void(int blocks, const tensor::Tensor& stream)>& watch);

}  // namespace tessera::parallel
