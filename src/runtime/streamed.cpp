#include "runtime/streamed.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "load/meta_weights.h"
#include "tensor/scope.h"

namespace tessera::runtime {
namespace {

using nn::DType;
using nn::Portion;

// The portion of a whole model.
Portion whole_of(const models::PipelineSpec& spec, std::optional<DType> experts) {
  Portion whole = spec.whole();
  whole.expert_dtype = experts;
  return whole;
}

class FileBlocks final : public BlockSource {
 public:
  explicit FileBlocks(std::shared_ptr<const nn::Weights> weights) : weights_(std::move(weights)) {}
  std::shared_ptr<const nn::Weights> weights(int, const nn::Seams&) const override {
    return weights_;
  }

 private:
  std::shared_ptr<const nn::Weights> weights_;
};

}  // namespace

StreamedDenoiser::StreamedDenoiser(const models::PipelineSpec& spec,
                                   const std::shared_ptr<const nn::Weights>& weights, DType dtype,
                                   int64_t resident, std::optional<DType> experts)
    : ShellDenoiser(spec.make(*weights, shell_of(whole_of(spec, experts), resident), dtype)),
      spec_(spec),
      dtype_(dtype),
      portion_(whole_of(spec, experts)),
      resident_(resident),
      blocks_(std::make_shared<FileBlocks>(weights)) {}

StreamedDenoiser::StreamedDenoiser(const models::PipelineSpec& spec, DType dtype,
                                   const Portion& portion,
                                   std::shared_ptr<const BlockSource> blocks,
                                   std::unique_ptr<nn::Denoiser> shell)
    : ShellDenoiser(std::move(shell)),
      spec_(spec),
      dtype_(dtype),
      portion_(portion),
      resident_(portion.blocks.begin),
      blocks_(std::move(blocks)) {}

void StreamedDenoiser::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                             nn::Hidden& hidden, const nn::Seams& seams) const {
  if (index < resident_) return shell().block(index, step, placement, hidden, seams);
  const auto weights = blocks_->weights(index, seams);
  const auto part = spec_.make(*weights, one_block(portion_, index), dtype_);
  part->block(index, step, placement, hidden, seams);
}

nn::Tensor StreamedDenoiser::first_input(const nn::StepContext& step,
                                         const nn::Placement& placement, const nn::Hidden& hidden,
                                         const nn::Seams& seams) const {
  const int index = reusable().first;
  if (index < resident_) return shell().first_input(step, placement, hidden, seams);
  const auto weights = blocks_->weights(index, seams);
  const auto part = spec_.make(*weights, one_block(portion_, index), dtype_);
  return part->first_input(step, placement, hidden, seams);
}

Portion shell_of(Portion portion, int64_t resident) {
  portion.blocks.end = portion.blocks.begin + resident;
  return portion;
}

Portion one_block(Portion portion, int64_t index) {
  portion.blocks = {index, index + 1};
  portion.embed = portion.head = portion.conditioning = false;
  return portion;
}

int64_t PartWeights::whole() const { return std::accumulate(blocks.begin(), blocks.end(), fixed); }

int64_t PartWeights::largest(int64_t first) const {
  int64_t most = 0;
  for (size_t i = static_cast<size_t>(first); i < blocks.size(); ++i)
    most = std::max(most, blocks[i]);
  return most;
}

int64_t weight_of(const models::PipelineSpec& spec, DType dtype, const Portion& portion,
                  const nn::Weights& weights) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const auto part = spec.make(weights, portion, dtype);
  return scope.memory->current(tensor::MemoryClass::weights);
}

PartWeights part_weights(const models::PipelineSpec& spec, DType dtype,
                         std::optional<DType> experts) {
  return part_weights(spec, dtype, experts, load::MetaWeights());
}

PartWeights part_weights(const models::PipelineSpec& spec, DType dtype,
                         std::optional<DType> experts, const nn::Weights& weights) {
  PartWeights parts;
  const Portion whole = whole_of(spec, experts);
  parts.fixed = weight_of(spec, dtype, shell_of(whole), weights);
  for (int64_t b = 0; b < spec.blocks; ++b)
    parts.blocks.push_back(weight_of(spec, dtype, one_block(whole, b), weights));
  return parts;
}

int64_t resident_blocks(const PartWeights& parts, int64_t room) {
  const auto count = static_cast<int64_t>(parts.blocks.size());
  if (parts.whole() <= room) return count;
  int64_t held_bytes = parts.fixed, resident = -1;
  for (int64_t r = 0; r < count && held_bytes + parts.largest(r) <= room; ++r) {
    resident = r;
    held_bytes += parts.blocks[static_cast<size_t>(r)];
  }
  return resident;
}

}  // namespace tessera::runtime
