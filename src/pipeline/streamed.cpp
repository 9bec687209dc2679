#include "pipeline/streamed.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "load/meta_weights.h"
#include "tensor/scope.h"

namespace tessera::pipeline {
namespace {

using nn::DType;
using nn::Portion;

// A block alone, which finds in context, placement and step what all blocks share.
Portion one_block(int64_t index, std::optional<DType> experts) {
  Portion one{{index, index + 1}, false, false};
  one.conditioning = false;
  one.expert_dtype = experts;
  return one;
}

// The first blocks, and what stands before and after all.
Portion shell_of(int64_t resident, std::optional<DType> experts) {
  Portion shell{{0, resident}, true, true};
  shell.expert_dtype = experts;
  return shell;
}

int64_t weight_of(const models::PipelineSpec& spec, DType dtype, const Portion& portion) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const load::MetaWeights weights;
  const auto part = spec.make(weights, portion, dtype);
  return scope.memory->current(tensor::MemoryClass::weights);
}

}  // namespace

StreamedDenoiser::StreamedDenoiser(const models::PipelineSpec& spec,
                                   std::shared_ptr<const nn::Weights> weights, DType dtype,
                                   int64_t resident, std::optional<DType> experts)
    : spec_(spec),
      weights_(std::move(weights)),
      dtype_(dtype),
      experts_(experts),
      resident_(resident),
      shell_(spec.make(*weights_, shell_of(resident, experts), dtype)) {}

void StreamedDenoiser::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                             nn::Hidden& hidden, const nn::Seams& seams) const {
  if (index < resident_) return shell_->block(index, step, placement, hidden, seams);
  const auto part = spec_.make(*weights_, one_block(index, experts_), dtype_);
  part->block(index, step, placement, hidden, seams);
}

int64_t PartWeights::whole() const { return std::accumulate(blocks.begin(), blocks.end(), fixed); }

int64_t PartWeights::largest(int64_t first) const {
  int64_t most = 0;
  for (size_t i = static_cast<size_t>(first); i < blocks.size(); ++i)
    most = std::max(most, blocks[i]);
  return most;
}

PartWeights part_weights(const models::PipelineSpec& spec, DType dtype,
                         std::optional<DType> experts) {
  PartWeights parts;
  parts.fixed = weight_of(spec, dtype, shell_of(0, experts));
  for (int64_t b = 0; b < spec.blocks; ++b)
    parts.blocks.push_back(weight_of(spec, dtype, one_block(b, experts)));
  return parts;
}

int64_t resident_blocks(const PartWeights& parts, int64_t room) {
  const auto count = static_cast<int64_t>(parts.blocks.size());
  if (parts.whole() <= room) return count;
  int64_t held = parts.fixed, resident = -1;
  for (int64_t r = 0; r < count && held + parts.largest(r) <= room; ++r) {
    resident = r;
    held += parts.blocks[static_cast<size_t>(r)];
  }
  return resident;
}

}  // namespace tessera::pipeline
