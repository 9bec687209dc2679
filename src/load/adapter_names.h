#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera::load {

/// A matrix [n, k] of a model that adapters may change: a linear layer with its diffusers name.
struct AdapterLayer {
  std::string name;
  int64_t n = 0, k = 0;
};
/// A part of a model, "transformer" or "text_encoder_2", of a class of diffusers or transformers.
struct AdapterPart {
  std::string name, type;
  std::vector<AdapterLayer> layers;
};

/// A layer of a model as rows of a tensor in the file: for a layer fused with others, the layer's
/// own rows. `swapped`: the file has the two halves of these rows in reverse order.
struct AdapterRows {
  std::string part;
  AdapterLayer layer;
  int64_t begin = 0;
  bool swapped = false;
};

/// Names of a model's layers in adapter files of diffusers and peft, ai-toolkit, ComfyUI, kohya's
/// scripts, OneTrainer, LyCORIS and XLabs, with names of diffusers or of the original files. The
/// table is built from the model's own layers, because underscored names cannot be split reliably.
class AdapterNames {
 public:
  explicit AdapterNames(const std::vector<AdapterPart>& parts);
  /// Layers for a name, in the order of their rows; null for unknown or ambiguous names.
  const std::vector<AdapterRows>* find(const std::string& module) const;

 private:
  void add(const std::string& name, const std::vector<AdapterRows>& rows);
  void add_transformer(const std::string& layer, const std::vector<AdapterRows>& rows);
  void add_originals(const AdapterPart& part);
  void add_encoder(const AdapterPart& part, const std::vector<AdapterPart>& parts);

  std::map<std::string, std::vector<AdapterRows>> known_;
};

}  // namespace tessera::load
