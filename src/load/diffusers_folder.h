#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/dtype.h"
#include "tessera/weight_files.h"

namespace tessera::load {

/// In what files hold weights that tessera quantised; none: as they were.
struct Quantised {
  std::optional<tensor::DType> experts{};  ///< routed ones: for products in i8
  bool int4 = false;                       ///< these are nibbles (kernels/nibbles.h), not int8
  std::optional<tensor::DType> dense{};    ///< attention, other MLPs, a language model's head
  bool int8_rows = false;                  ///< dense ones are multiplied with activations in int8
  std::string rules{};                     ///< with which it was quantised (load/quantise_rules.h)
};

/// One part of a model: a transformer, a VAE, a text encoder, a scheduler, ...
struct Component {
  std::string name;        ///< "transformer", "vae", "text_encoder_2", "model", ...
  std::string library;     ///< "diffusers", "transformers", or "" for a bare folder
  std::string class_name;  ///< "FluxTransformer2DModel"; bare folders: _class_name or model_type
  std::string folder;      ///< where its files are
  base::Json config;       ///< config.json, scheduler_config.json, ...; an empty object without one
  Quantised quantised{};
  std::string file{};     ///< in place of the folder's weights (load/weights_file.h); "": none
  std::string prefix{};   ///< of its tensors there
  bool described = true;  ///< by the folder; else `config` is what the shapes of `file` say

  /// Where the weights are, and what describes them, for messages.
  const std::string& weights() const { return file.empty() ? folder : file; }
  std::string description() const { return described ? folder + "/config.json" : file; }
};

enum class FolderKind { pipeline, single };

/// What a model folder holds. Weights are not opened.
struct ModelFolder {
  std::string path;
  FolderKind kind = FolderKind::single;
  std::string class_name;  ///< the pipeline's class, or the model_type of a single model
  std::vector<Component>
      components;  ///< alphabetic; what model_index.json gives as null is left out
  std::map<std::string, std::string> absent;  ///< named there, without a folder: name -> class
  base::Json options;  ///< the plain values of model_index.json (requires_safety_checker, ...)

  bool has(const std::string& component) const;
  /// Throws Error(model) listing what there is, or saying what must be downloaded too; `otherwise`
  /// stands behind it.
  const Component& component(const std::string& name, const std::string& otherwise = "") const;
};

/// Describes a folder with model_index.json (diffusers layout) or config.json (transformers layout,
/// DiT-MoE; with vae/ and others as subfolders). A single model's own component is "transformer"
/// for diffusion models, "vae" for autoencoders, else "model". A component of model_index.json
/// whose folder is not there is no error until somebody asks for it. Throws Error(model) saying
/// what to do for anything else. Parts for which there are `files` may lack their config.json, and
/// count as absent then.
ModelFolder open_folder(const std::string& path, const WeightFiles& files = {});

}  // namespace tessera::load
