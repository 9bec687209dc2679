#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "load/tensor_set.h"
#include "nn/weights.h"

namespace tessera::load {

/// Weights without data: records all requests of a model and returns meta tensors. A model is thus
/// built in full, with names checked and memory estimated, before any weight is read. As in a
/// WeightStore, a weight requested twice exists once while in use.
class MetaWeights : public nn::Weights {
 public:
  /// Without files: stored tensors are of dtype `stored`, has() is false.
  explicit MetaWeights(tensor::DType stored = tensor::DType::bf16) : stored_(stored) {}
  /// With files: has() and dtypes come from the files; missing names are recorded too.
  explicit MetaWeights(TensorSet known) : known_(std::move(known)) {}

  bool has(const std::string& name) const override;
  bool smoothed(const std::string& weight) const override;
  nn::FetchedWeight fetch(const nn::WeightRequest& request) const override;

  /// Names and shapes asked for so far.
  std::map<std::string, tensor::Shape> asked() const;
  /// Packed forms of matrices that were requested in packed form only.
  std::map<std::string, ops::WeightForm> forms() const;
  /// Names of weights packed for products in `compute`.
  std::vector<std::string> packed_in(tensor::DType compute) const;
  /// Matrices packed as pairs: gate -> up.
  std::map<std::string, std::string> pairs() const;
  /// Number of elements of all requested tensors, each counted once.
  int64_t parameters() const;

 private:
  tensor::Tensor stored(const std::string& name, const tensor::Shape& shape) const;
  ops::Weight packed_matrix(const nn::WeightRequest& request) const;
  ops::Weight packed_pair(const nn::WeightRequest& request) const;
  nn::FetchedWeight packed_filter(const nn::WeightRequest& request) const;
  tensor::Tensor passing(const std::string& name, const tensor::Shape& shape,
                         const nn::Cut& cut = {}) const;
  ops::StoredMatrix passing_matrix(const std::string& name, const tensor::Shape& shape,
                                   const ops::WeightForm& form, const nn::Cut& cut) const;
  tensor::Tensor resident(const std::string& name, const tensor::Shape& shape, tensor::DType dtype,
                          const nn::Cut& cut = {}) const;
  template <class T, class Make>
  std::shared_ptr<T> share(const std::string& key, const Make& make) const;
  void record(const std::string& name, const tensor::Shape& shape) const;

  std::optional<TensorSet> known_;
  tensor::DType stored_ = tensor::DType::bf16;
  mutable std::mutex mutex_;
  mutable std::map<std::string, tensor::Shape> asked_;
  mutable std::map<std::string, ops::WeightForm> packed_;  // matrices
  mutable std::map<std::string, std::string> pairs_;
  mutable std::set<std::string> as_stored_;  // requested as stored
  mutable std::map<std::string, std::weak_ptr<const void>> shared_;
};

/// Compares a model's requests with the contents of `folder`. Throws a single Error(model) naming
/// all tensors that are missing, have another shape, or an unsupported type (F8). Returns a
/// sentence naming all unused tensors, "" if there are none; names matching an entry of `unused` (a
/// name, or a prefix followed by '*') are expected and left out.
[[nodiscard]] std::string check_names(const MetaWeights& weights, const TensorSet& tensors,
                                      const std::string& folder,
                                      std::span<const std::string> unused = {});

}  // namespace tessera::load
