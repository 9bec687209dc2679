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

/// The named tensors of a component: one safetensors file, or the shards of an index. Cheap to
/// copy.
class TensorSet {
 public:
  TensorSet() = default;
  /// Every tensor of the files. Throws Error(model) if two files hold the same name.
  explicit TensorSet(const std::vector<TensorFile>& files);

  bool has(const std::string& name) const { return file_of_.contains(name); }
  /// Names in alphabetic order.
  std::vector<std::string> names() const;
  size_t size() const { return file_of_.size(); }
  /// The file that holds a tensor. Throws Error(model) if none does.
  const TensorFile& file(const std::string& name) const;
  const TensorEntry& entry(const std::string& name) const { return file(name).entry(name); }
  tensor::Tensor get(const std::string& name) const { return file(name).get(name); }
  const std::vector<TensorFile>& files() const { return files_; }
  /// Bytes of all tensors, as the files hold them.
  int64_t bytes() const;
  /// The name of `name` in a file with other names; "": the same.
  std::string file_name(const std::string& name) const;
  void use_names(std::shared_ptr<const NameMap> names) { names_ = std::move(names); }
  /// Whether matrices that are no experts' may be whole numbers with scales: the folder says so.
  bool dense_in_int8() const { return dense_in_int8_; }
  /// `int8_rows`: for products with int8 activations.
  void hold_dense_in_int8(bool int8_rows) {
    dense_in_int8_ = true;
    int8_rows_ = int8_rows;
  }
  bool int8_rows() const { return int8_rows_; }
  /// Quantises float matrices by rules when they are read. `encoder`: a text encoder's.
  void quantise(const QuantiseRules& rules, bool encoder) {
    rules_ = rules;
    encoder_ = encoder;
  }
  const QuantiseRules& rules() const { return rules_; }
  bool encoder() const { return encoder_; }
  /// Whether what lies in the files as kernels read it is used where it lies
  /// (RunOptions::map_weights).
  bool maps() const { return maps_; }
  void use_mapped(bool maps) { maps_ = maps; }
  /// Which of several whole sets in a folder was opened, for a note; "": there was one.
  const std::string& choice() const { return choice_; }
  void say_choice(std::string text) { choice_ = std::move(text); }

 private:
  std::vector<TensorFile> files_;
  std::map<std::string, size_t> file_of_;
  bool dense_in_int8_ = false, int8_rows_ = false, maps_ = false, encoder_ = false;
  QuantiseRules rules_;
  std::string choice_;
  std::shared_ptr<const NameMap> names_;
};

/// The library that a component is of, where both name weights otherwise.
enum class Library : uint8_t { diffusers, transformers };
/// By model_index.json; of a bare folder by its config.json.
Library library_of(const Component& part);

/// Opens the weights in a component's folder: diffusion_pytorch_model.safetensors or
/// model.safetensors, or the shards of their index, or a variant of these (*.fp16.*, *.bf16.*,
/// ...). `variant` asks for a variant by name; "" takes the plain files, else bf16, fp16, fp32. Of
/// several whole sets it takes that of the library's own name, and an index before a single file as
/// diffusers, after it as transformers; TensorSet::choice() says so. Every shard is opened and
/// checked against the index. Throws Error(model).
TensorSet open_component(const std::string& folder, const std::string& variant = "",
                         Library library = Library::diffusers);

/// Whether a component's folder holds weights of any kind, complete or not; else it is a
/// description that came alone.
bool has_weights(const std::string& folder);
/// The same, or a file stands in their place.
bool has_weights(const Component& part);
/// Bytes that the index of a folder announces for its shards; 0: there is none that says.
int64_t announced_bytes(const std::string& folder);

/// The shards that an index names, checked: plain file names beside it, each present, holding
/// exactly the tensors that the index places there. Throws Error(model).
TensorSet open_index(const std::string& index_path);

}  // namespace tessera::load
