#pragma once

#include <memory>
#include <set>
#include <utility>

#include "nn/moe/moe_layers.h"
#include "nn/moe/selection_policy.h"
#include "nn/moe/sequence_usage.h"

namespace tessera::nn {

/// Experts under a selection rule, with usage by sequence.
struct SelectedExperts {
  explicit SelectedExperts(const SelectionRule& rule, std::unique_ptr<ExpertBackend> backend =
                                                          std::make_unique<LocalBackend>())
      : policy(std::make_shared<SelectionPolicy>(rule)), layers(policy, std::move(backend)) {
    layers.log().watch([this](const MoeWork& work) { usage.see(work); });
  }
  SelectedExperts(const SelectedExperts&) = delete;
  SelectedExperts& operator=(const SelectedExperts&) = delete;

  std::shared_ptr<SelectionPolicy> policy;
  MoeLayers layers;
  SequenceUsage usage;
};

}  // namespace tessera::nn
