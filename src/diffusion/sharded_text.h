#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "models/text/text_encoder.h"
#include "runtime/model_state.h"
#include "tessera/report.h"

namespace tessera::diffusion {

/// Runs a text encoder on a batch under shard=. Each encoding rank has some of the texts, and packs
/// its run of the bytes of each layer (sharded_blocks.h). A layer is gathered one layer ahead and
/// released after its use. The modules before and after the layers are whole on ranks with texts.
/// If ranks are processes, all ranks of the plan call this function; rank 0 receives the states.
/// With `keep` the runs stay for later requests, and count as `keep` bytes. `report`: memory and
/// work of this process's ranks, in `per_rank`, and the traffic of threads. The meters count all
/// encoders of a request. `adapters`: adapters of the request that change the part; null: none.
/// With adapters no runs are kept.
models::TextStates encode_sharded(const runtime::ModelState& state, const std::string& part,
                                  const models::TextBatch& batch, int64_t keep,
                                  const runtime::RunMeters& meters, const std::stop_token& stop,
                                  Report& report, const runtime::Adapters* adapters = nullptr);

/// Bytes of this process's runs of a text encoder's layers up to the states `hidden`.
int64_t sharded_bytes(const runtime::ModelState& state, const std::string& part,
                      const std::vector<int>& hidden);

}  // namespace tessera::diffusion
