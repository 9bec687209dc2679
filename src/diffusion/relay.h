#pragma once

#include <deque>
#include <vector>

#include "diffusion/decode.h"
#include "diffusion/denoise.h"
#include "diffusion/parts.h"

namespace tessera::diffusion {

/// A request of a sequence whose images are decoded by ranks of their own (Plan::vae_apart). It
/// stays where it is made.
struct Order {
  Order(const GenerateRequest& asked, Job planned, GenerateResult begun = {})
      : request(asked), job(std::move(planned)), trace(job, job.traced), result(std::move(begun)) {}
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;

  const GenerateRequest& request;
  Job job;
  Trace trace;
  GenerateResult result;     ///< its report is that of all ranks; of decoders in decode_*
  std::vector<Job> parts{};  ///< that are denoised one after the other
  tensor::Tensor tokens{};   ///< latents of all parts, with rank 0
  Decoded made{};            ///< what became of them, with rank 0
};

/// Denoises part after part of each order on the first ranks of the plan, while the last ones
/// decode the part before. Rank 0 sends latents to the first decoder, and gets images back before
/// it sends the next ones, so that no more than a part is on its way. A failure or a stop in either
/// half ends both. `decoder`: of a process that decodes.
void run_halves(runtime::ModelState& state, const RunControl& control, std::deque<Order>& orders,
                const SharedDecoder& decoder);

}  // namespace tessera::diffusion
