#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "models/text/text_encoder.h"
#include "runtime/model_state.h"
#include "tessera/report.h"

namespace tessera::diffusion {

/// What a text encoder makes of a batch under shard=. Each of the encoding ranks has some of the
/// texts and packs a run of the bytes of each layer (spread_blocks.h); the others' come a layer
/// ahead of its turn and go behind it. What stands before and behind the layers is whole on ranks
/// that have texts. All ranks of a plan that are processes call it; the states are there for who
/// holds rank 0. With `keep` the runs stay, for later requests, and count as so many bytes.
/// `did`: what ranks of this process held and computed, in `per_rank`, and, of threads, sent. The
/// meters are those of all encoders of a request. `adapters`: those of the request if they change
/// the part, and then nothing is kept; null: none do.
models::TextStates encode_spread(const runtime::ModelState& state, const std::string& part,
                                 const models::TextBatch& batch, int64_t keep,
                                 const runtime::RunMeters& meters, const std::stop_token& stop,
                                 Report& did, const runtime::Adapters* adapters = nullptr);

/// Bytes of the runs of the layers of a text encoder, those that make `hidden`, that this process
/// has.
int64_t spread_bytes(const runtime::ModelState& state, const std::string& part,
                     const std::vector<int>& hidden);

}  // namespace tessera::diffusion
