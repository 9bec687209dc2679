#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/moe/policy.h"

namespace tessera::nn {

/// The experts of each token in a run, by MoE layer, step, sequence of the request and id of the
/// token. Not thread-safe.
class RecordedRouting {
 public:
  RecordedRouting() = default;
  RecordedRouting(int64_t steps, int64_t sequences, int64_t tokens)
      : steps_(steps), sequences_(sequences), tokens_(tokens) {}
  /// Reads what tensors() returned. Throws Error(usage) naming a tensor of another form.
  explicit RecordedRouting(const std::map<std::string, Tensor>& tensors);

  /// Adds a call with its `ids` i32 [tokens, slots]; on meta their size alone. `numbers`: sequences
  /// of the request, by sequence of the view.
  void note(const MoeCall& call, const std::vector<int>& numbers, const Tensor& ids);
  /// The ids of `count` tokens of a call's view, from MoeCall::first on, i32 [count, slots] on the
  /// host. Throws Error(usage) for tokens or slots that the record does not have.
  Tensor ids(const MoeCall& call, const std::vector<int>& numbers, int64_t count,
             int64_t slots) const;

  /// "routing.N" of layer N: i32 [steps, sequences, tokens, slots]; -1 where no call was added.
  const std::map<std::string, Tensor>& tensors() const { return layers_; }
  bool complete() const;  ///< all tokens of all steps have experts in each layer
  int64_t steps() const { return steps_; }
  int64_t sequences() const { return sequences_; }
  int64_t tokens() const { return tokens_; }
  /// The experts that a layer needs at least, and the number of layers.
  int64_t experts() const;
  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }

 private:
  int64_t steps_ = 0, sequences_ = 0, tokens_ = 0;
  std::map<std::string, Tensor> layers_;
};

/// Gives tokens of a dry run the experts that they had in a run. Counts the work of the model's
/// router.
class RecordedPolicy final : public ExpertPolicy {
 public:
  RecordedPolicy(std::shared_ptr<const RecordedRouting> record, std::vector<int> numbers)
      : record_(std::move(record)), numbers_(std::move(numbers)) {}
  ops::Routing choose(const MoeCall& call, const Tensor& tokens, const Tensor& logits,
                      const ops::RoutingOptions& router) const override;
  bool by_token() const override { return true; }

 private:
  std::shared_ptr<const RecordedRouting> record_;
  std::vector<int> numbers_;
};

}  // namespace tessera::nn
