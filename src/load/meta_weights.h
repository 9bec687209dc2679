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

/// Weights that hold nothing: they record what a model asks for and hand out meta tensors, so that
/// a model is built in full, its names checked and its memory estimated, before a byte is read. As
/// in a WeightStore, what is asked for twice is there once, while anybody holds it.
class MetaWeights : public nn::Weights {
 public:
  /// Without files: get() gives tensors of dtype `stored`, has() says no.
  explicit MetaWeights(tensor::DType stored = tensor::DType::bf16) : stored_(stored) {}
  /// Over files: has() and dtypes are theirs; names that they lack are recorded all the same.
  explicit MetaWeights(TensorSet known) : known_(std::move(known)) {}

  bool has(const std::string& name) const override;
  tensor::Tensor get(const std::string& name, const tensor::Shape& shape) const override;
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, ops::DType compute,
                     const nn::Cut& cut = {}) const override;
  ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                     ops::DType compute, const nn::Cut& cut = {}) const override;
  ops::ConvWeight conv(const std::string& weight, const std::string& bias,
                       const tensor::Shape& shape, ops::DType compute) const override;
  tensor::Tensor vector(const std::string& name, int64_t n, const nn::Cut& cut = {}) const override;

  /// Names and shapes asked for so far.
  std::map<std::string, tensor::Shape> asked() const;
  /// In what matrices were to be packed that were asked for in nothing else.
  std::map<std::string, ops::WeightForm> forms() const;
  /// Names of those that were to be packed for products in `compute`.
  std::vector<std::string> packed_in(tensor::DType compute) const;
  /// Matrices that were to be packed as pairs: of each gate its up.
  std::map<std::string, std::string> pairs() const;
  /// Elements of all tensors asked for, each once.
  int64_t parameters() const;

 private:
  tensor::Tensor passing(const std::string& name, const tensor::Shape& shape,
                         const nn::Cut& cut = {}) const;
  ops::StoredMatrix passing_matrix(const std::string& name, const tensor::Shape& shape,
                                   const ops::WeightForm& form, const nn::Cut& cut) const;
  tensor::Tensor held(const std::string& name, const tensor::Shape& shape, tensor::DType dtype,
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
  mutable std::set<std::string> as_stored_;  // what get() was asked for
  mutable std::map<std::string, std::weak_ptr<const void>> shared_;
};

/// Compares what a model asked for with what `folder` holds. Throws one Error(model) naming all
/// tensors that are missing, of another shape, or of a type that is not read (F8). Returns a
/// sentence naming all that nobody asked for, "" if there are none; those that match an entry of
/// `unused` (a name, or a beginning followed by '*') belong there and are not named.
[[nodiscard]] std::string check_names(const MetaWeights& weights, const TensorSet& tensors,
                                      const std::string& folder,
                                      std::span<const std::string> unused = {});

}  // namespace tessera::load
