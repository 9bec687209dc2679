#include "runtime/loading_denoiser.h"

#include <utility>

#include "base/stopwatch.h"
#include "tensor/scope.h"

namespace tessera::runtime {

LoadingDenoiser::LoadingDenoiser(const models::PipelineSpec& spec,
                                 std::shared_ptr<const nn::Weights> weights,
                                 const nn::Weights& meta, nn::DType dtype,
                                 const nn::Portion& portion)
    : ShellDenoiser(spec.make(*weights, shell_of(portion), dtype)),
      spec_(spec),
      dtype_(dtype),
      portion_(portion),
      memory_(tensor::current_scope().memory),
      slots_(static_cast<size_t>(portion.blocks.size())),
      missing_(portion.blocks.size()),
      weights_(std::move(weights)) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto index = portion.blocks.begin + static_cast<int64_t>(i);
    slots_[i].expected = weight_of(spec, dtype, one_block(portion, index), meta);
    count(slots_[i].expected);
  }
}

LoadingDenoiser::~LoadingDenoiser() {
  for (const Slot& slot : slots_) count(-slot.expected);
}

void LoadingDenoiser::count(int64_t bytes) const {
  if (memory_) memory_->add(tensor::MemoryClass::weights, bytes);
}

const nn::Denoiser& LoadingDenoiser::part(int index) const {
  Slot& slot = slots_.at(static_cast<size_t>(index - portion_.blocks.begin));
  const std::lock_guard lock(slot.loading);
  if (!slot.part) load(index, slot);
  return *slot.part;
}

// Counts where the shell counts, not in the request that comes first. The files close after the
// last block.
void LoadingDenoiser::load(int index, Slot& slot) const {
  const base::Stopwatch clock;
  tensor::Scope loading = tensor::current_scope();
  loading.memory = memory_;
  loading.meter = nullptr;
  const tensor::BindScope bind(loading);
  count(-std::exchange(slot.expected, 0));
  slot.part = spec_.make(*weights_, one_block(portion_, index), dtype_);
  if (--missing_ == 0) weights_.reset();
  seconds_ += clock.seconds();
}

void LoadingDenoiser::load_all() const {
  for (int64_t i = portion_.blocks.begin; i < portion_.blocks.end; ++i)
    (void)part(static_cast<int>(i));
}

std::shared_ptr<const nn::Denoiser> with_all_blocks(std::shared_ptr<const nn::Denoiser> network) {
  if (const auto* loading = dynamic_cast<const LoadingDenoiser*>(network.get()))
    loading->load_all();
  return network;
}

void LoadingDenoiser::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                            nn::Hidden& hidden, const nn::Seams& seams) const {
  part(index).block(index, step, placement, hidden, seams);
}

nn::Tensor LoadingDenoiser::first_input(const nn::StepContext& step, const nn::Placement& placement,
                                        const nn::Hidden& hidden, const nn::Seams& seams) const {
  return part(reusable().first).first_input(step, placement, hidden, seams);
}

}  // namespace tessera::runtime
