#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "load/diffusers_folder.h"
#include "load/quantise_rules.h"
#include "load/safetensors.h"

namespace tessera::load {

class NameMap;

/// The part of a model whose matrices are quantised when they are read.
enum class ProductsOf : uint8_t { transformer, text_encoder, language_model };
/// By the name of a pipeline's component.
inline ProductsOf products_of(const std::string& component) {
  return component == "transformer" ? ProductsOf::transformer : ProductsOf::text_encoder;
}

/// Named tensors of a component: a safetensors file, or the shards of an index. Cheap to copy.
class TensorSet {
 public:
  TensorSet() = default;
  /// Combines all tensors of the files. Throws Error(model) if two files hold the same name.
  explicit TensorSet(const std::vector<TensorFile>& files);

  bool has(const std::string& name) const { return file_of_.contains(name); }
  /// Names in alphabetic order.
  std::vector<std::string> names() const;
  size_t size() const { return file_of_.size(); }
  /// The file with a tensor. Throws Error(model) if missing.
  const TensorFile& file(const std::string& name) const;
  const TensorEntry& entry(const std::string& name) const { return file(name).entry(name); }
  tensor::Tensor get(const std::string& name) const { return file(name).get(name); }
  const std::vector<TensorFile>& files() const { return files_; }
  /// Stored bytes of all tensors.
  int64_t bytes() const;
  /// The name of `name` in a file with other names; "": the same.
  std::string file_name(const std::string& name) const;
  void use_names(std::shared_ptr<const NameMap> names) { names_ = std::move(names); }
  /// True if matrices other than experts may be integers with scales, as declared by the folder.
  bool dense_in_int8() const { return dense_in_int8_; }
  /// `int8_rows`: for products with int8 activations.
  void hold_dense_in_int8(bool int8_rows) {
    dense_in_int8_ = true;
    int8_rows_ = int8_rows;
  }
  bool int8_rows() const { return int8_rows_; }
  /// Quantises float matrices by rules when they are read. A language model has rules for block
  /// formats only, and its activations stay floats.
  void quantise(const QuantiseRules& rules, ProductsOf part) {
    rules_ = rules;
    products_of_ = part;
  }
  const QuantiseRules& rules() const { return rules_; }
  bool encoder() const { return products_of_ == ProductsOf::text_encoder; }
  bool language() const { return products_of_ == ProductsOf::language_model; }
  /// True if data in kernel layout is used from the mapped file (RunOptions::map_weights).
  bool maps() const { return maps_; }
  void use_mapped(bool maps) { maps_ = maps; }
  /// The opened set, for a note, if a folder has several complete sets; "": only one.
  const std::string& choice() const { return choice_; }
  void say_choice(std::string text) { choice_ = std::move(text); }

 private:
  std::vector<TensorFile> files_;
  std::map<std::string, size_t> file_of_;
  bool dense_in_int8_ = false, int8_rows_ = false, maps_ = false;
  ProductsOf products_of_ = ProductsOf::transformer;
  QuantiseRules rules_;
  std::string choice_;
  std::shared_ptr<const NameMap> names_;
};

/// Library of a component; the libraries name weights differently.
enum class Library : uint8_t { diffusers, transformers };
/// From model_index.json; for a bare folder from config.json.
Library library_of(const Component& part);

/// Opens the weights of a component's folder: diffusion_pytorch_model.safetensors or
/// model.safetensors, or the shards of their index, or a variant of these (*.fp16.*, *.bf16.*,
/// ...). `variant` selects a variant by name; "" prefers the plain files, then bf16, fp16, fp32.
/// Among several complete sets, the library's own file name wins; diffusers prefers an index to a
/// single file, transformers the reverse; TensorSet::choice() reports the choice. Every shard is
/// opened and checked against the index. Throws Error(model).
TensorSet open_component(const std::string& folder, const std::string& variant = "",
                         Library library = Library::diffusers);

/// True if a component's folder holds any weights, complete or not; else the folder has a
/// description only.
bool has_weights(const std::string& folder);
/// Same, or a file replaces the weights.
bool has_weights(const Component& part);
/// Total bytes announced by a folder's index; 0: not stated.
int64_t announced_bytes(const std::string& folder);

/// Opens the shards of an index and checks them: plain file names in the same folder, all present,
/// each with exactly the tensors listed in the index. Throws Error(model).
TensorSet open_index(const std::string& index_path);

}  // namespace tessera::load
