#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Files in place of the weights of a folder's parts: GGUF, or safetensors in one file, by the
/// names of diffusers and transformers or by the maker's names, with and without
/// `model.diffusion_model.`. A whole checkpoint serves for each of its parts. The folder's
/// config.json describes a part; for some transformers config.json and folder may be missing.
struct WeightFiles {
  std::string transformer;  ///< "": the folder's own, likewise below
  /// FILE, or NAME=FILE in a folder with several candidates: text_encoder_2=FILE.
  std::vector<std::string> text_encoders;
  std::string vae;          ///< also a folder of an AutoencoderTiny, or a file of TAESD's names
  std::string preview_vae;  ///< likewise, for previews alone; "": previews are decoded by the VAE

  bool empty() const {
    return transformer.empty() && text_encoders.empty() && vae.empty() && preview_vae.empty();
  }
};

}  // namespace tessera
