#pragma once

#include <deque>
#include <vector>

#include "diffusion/decode.h"
#include "diffusion/denoise.h"
#include "diffusion/parts.h"

namespace tessera::diffusion {

/// A request in a queue, with images decoded by separate ranks (Plan::vae_apart). Requests never
/// move in memory.
struct QueuedRequest {
  QueuedRequest(const GenerateRequest& generate_request, Job planned_job,
                GenerateResult initial_result = {})
      : request(generate_request),
        job(std::move(planned_job)),
        trace(job, job.planned.traced),
        result(std::move(initial_result)) {}
  QueuedRequest(const QueuedRequest&) = delete;
  QueuedRequest& operator=(const QueuedRequest&) = delete;

  const GenerateRequest& request;
  Job job;
  Trace trace;
  GenerateResult result;     ///< the report covers all ranks; decoders' entries are named decode_*
  std::vector<Job> parts{};  ///< denoised one after the other
  tensor::Tensor tokens{};   ///< latents of all parts, at rank 0
  Decoded decoded{};         ///< decoded images, at rank 0
};

/// Denoises the parts of all requests on the first ranks of the plan, while the last ranks decode
/// the previous part. Rank 0 sends latents to the first decoder, and receives images before the
/// next latents, so at most a single part is in flight. A failure or a stop in either stage ends
/// both. `decoder`: the stop of a process that decodes.
void run_stages(runtime::ModelState& state, const RunControl& control,
                std::deque<QueuedRequest>& requests, const SharedDecoder& decoder);

}  // namespace tessera::diffusion
