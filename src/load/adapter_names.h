#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera::load {

/// A matrix [n, k] of a model that adapters may change: a linear layer by its diffusers name.
struct AdapterLayer {
  std::string name;
  int64_t n = 0, k = 0;
};
/// A part of a model, "transformer" or "text_encoder_2", of a class of diffusers or transformers.
struct AdapterPart {
  std::string name, type;
  std::vector<AdapterLayer> layers;
};

/// A layer of a model as rows of what a file names: of a projection that is fused with others, its
/// own; `swapped`: the file has the two halves of these rows the other way round.
struct AdapterRows {
  std::string part;
  AdapterLayer layer;
  int64_t begin = 0;
  bool swapped = false;
};

/// How adapter files name the layers of a model: by diffusers and peft, ai-toolkit, ComfyUI,
/// kohya's scripts, OneTrainer, LyCORIS and XLabs, in diffusers' names or those of the original
/// files. The table is made of the model's own layers, since underscored names cannot be taken
/// apart.
class AdapterNames {
 public:
  explicit AdapterNames(const std::vector<AdapterPart>& parts);
  /// The layers that a name stands for, in the order of its rows; null: none, or two different
  /// ones.
  const std::vector<AdapterRows>* find(const std::string& module) const;

 private:
  void add(const std::string& name, const std::vector<AdapterRows>& rows);
  void add_transformer(const std::string& layer, const std::vector<AdapterRows>& rows);
  void add_originals(const AdapterPart& part);
  void add_encoder(const AdapterPart& part, const std::vector<AdapterPart>& parts);

  std::map<std::string, std::vector<AdapterRows>> known_;
};

}  // namespace tessera::load
