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
using nn::Tensor;

struct StreamedContext : nn::Context {
  nn::Conditioning conditioning;
  nn::TokenShape shape;
  nn::ContextPtr shell;
};

struct StreamedStep : nn::StepContext {
  const StreamedContext* context = nullptr;
  Tensor timestep;
  nn::StepContextPtr shell;
};

const StreamedStep& mine(const nn::StepContext& step) {
  return dynamic_cast<const StreamedStep&>(step);
}

int64_t weight_of(const models::PipelineSpec& recipe, DType dtype, const Portion& portion) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const load::MetaWeights weights;
  const auto part = recipe.make(weights, portion, dtype);
  return scope.memory->current(tensor::MemoryClass::weights);
}

}  // namespace

StreamedDenoiser::StreamedDenoiser(const models::PipelineSpec& recipe,
                                   std::shared_ptr<const nn::Weights> weights, DType dtype,
                                   int64_t resident)
    : recipe_(recipe),
      weights_(std::move(weights)),
      dtype_(dtype),
      resident_(resident),
      shell_(recipe.make(*weights_, {{0, resident}, true, true}, dtype)) {}

nn::ContextPtr StreamedDenoiser::prepare(const nn::Conditioning& conditioning,
                                         const nn::TokenShape& shape) const {
  auto context = std::make_shared<StreamedContext>();
  context->conditioning = conditioning;
  context->shape = shape;
  context->shell = shell_->prepare(conditioning, shape);
  return context;
}

nn::StepContextPtr StreamedDenoiser::at(const nn::Context& context, const Tensor& timestep) const {
  auto step = std::make_shared<StreamedStep>();
  step->context = &dynamic_cast<const StreamedContext&>(context);
  step->timestep = timestep;
  step->shell = shell_->at(*step->context->shell, timestep);
  return step;
}

nn::Hidden StreamedDenoiser::embed(const nn::StepContext& step, const Tensor& latent,
                                   const nn::TokenView& view) const {
  return shell_->embed(*mine(step).shell, latent, view);
}

void StreamedDenoiser::block(int index, const nn::StepContext& step, const nn::TokenView& view,
                             nn::Hidden& hidden, const nn::Seams& seams) const {
  if (index < resident_) return shell_->block(index, *mine(step).shell, view, hidden, seams);
  const StreamedContext& context = *mine(step).context;
  const auto part = recipe_.make(*weights_, {{index, index + 1}, false, false}, dtype_);
  const nn::ContextPtr prepared = part->prepare(context.conditioning, context.shape);
  part->block(index, *part->at(*prepared, mine(step).timestep), view, hidden, seams);
}

Tensor StreamedDenoiser::head(const nn::StepContext& step, const nn::TokenView& view,
                              const nn::Hidden& hidden) const {
  return shell_->head(*mine(step).shell, view, hidden);
}

int64_t PartWeights::whole() const { return std::accumulate(blocks.begin(), blocks.end(), fixed); }

int64_t PartWeights::largest(int64_t first) const {
  int64_t most = 0;
  for (size_t i = static_cast<size_t>(first); i < blocks.size(); ++i)
    most = std::max(most, blocks[i]);
  return most;
}

PartWeights part_weights(const models::PipelineSpec& recipe, DType dtype) {
  PartWeights parts;
  parts.fixed = weight_of(recipe, dtype, {{0, 0}, true, true});
  const int64_t shared = weight_of(recipe, dtype, {{0, 0}, false, false});
  for (int64_t b = 0; b < recipe.blocks; ++b)
    parts.blocks.push_back(weight_of(recipe, dtype, {{b, b + 1}, false, false}) - shared);
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
