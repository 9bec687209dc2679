#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/dtype.h"
#include "tessera/weight_files.h"

namespace tessera::load {

/// Formats of weights that tessera quantised; none: original.
struct Quantised {
  std::optional<tensor::DType> experts{};  ///< routed experts, for products in i8
  bool int4 = false;                       ///< experts are nibbles (kernels/nibbles.h), not int8
  std::optional<tensor::DType> dense{};    ///< attention, other MLPs, language model head
  bool int8_rows = false;                  ///< dense weights are multiplied with int8 activations
  std::string rules{};                     ///< quantisation rules (load/quantise_rules.h)
};

/// A part of a model: a transformer, a VAE, a text encoder, a scheduler, ...
struct Component {
  std::string name;        ///< "transformer", "vae", "text_encoder_2", "model", ...
  std::string library;     ///< "diffusers", "transformers", or "" for a bare folder
  std::string class_name;  ///< "FluxTransformer2DModel"; bare folders: _class_name or model_type
  std::string folder;      ///< folder of the files
  base::Json config;       ///< config.json, scheduler_config.json, ...; an empty object if missing
  Quantised quantised{};
  std::string file{};     ///< replaces the folder's weights (load/weights_file.h); "": none
  std::string prefix{};   ///< prefix of the tensors in `file`
  bool described = true;  ///< by the folder; false: `config` was derived from the shapes of `file`

  /// Location of the weights, and of their description, for messages.
  const std::string& weights() const { return file.empty() ? folder : file; }
  std::string description() const { return described ? folder + "/config.json" : file; }
};

enum class FolderKind { pipeline, single };

/// Contents of a model folder. Weights are not opened.
struct ModelFolder {
  std::string path;
  FolderKind kind = FolderKind::single;
  std::string class_name;             ///< the pipeline's class, or the model_type of a single model
  std::vector<Component> components;  ///< alphabetic; without the null entries of model_index.json
  std::map<std::string, std::string> absent;  ///< listed but without a folder: name -> class
  base::Json options;  ///< plain values of model_index.json (requires_safety_checker, ...)

  bool has(const std::string& component) const;
  /// Throws Error(model) listing the existing components or the missing downloads, followed by
  /// `otherwise`.
  const Component& component(const std::string& name, const std::string& otherwise = "") const;
};

/// Reads a folder with model_index.json (diffusers layout) or config.json (transformers layout,
/// DiT-MoE; with vae/ and others as subfolders). A single model's own component is "transformer"
/// for diffusion models, "vae" for autoencoders, else "model". A component of model_index.json
/// without a folder is an error only on use. Throws Error(model) with advice for anything else.
/// Parts with `files` may lack their config.json, and then count as absent.
ModelFolder open_folder(const std::string& path, const WeightFiles& files = {});

}  // namespace tessera::load
