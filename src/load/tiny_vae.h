#pragma once

#include <string>

#include "load/diffusers_folder.h"
#include "load/tensor_file.h"

namespace tessera::load {

inline constexpr const char* kTinyVae = "AutoencoderTiny";
/// The part of a folder that decodes previews alone.
inline constexpr const char* kPreviewVae = "preview_vae";

/// Whether these are the weights of a TAESD, by diffusers' names ("decoder.layers.0.weight") or its
/// maker's: decoder or encoder alone ("1.weight", "3.conv.0.weight"), or under "taesd_decoder.",
/// "taesd_encoder.", "decoder." and "encoder.".
bool is_tiny_vae(const TensorFile& file);
/// The file by diffusers' names. Throws Error(model) where a name stands for two.
TensorFile with_tiny_names(const TensorFile& file);
/// Whether a path is a folder, or a file of a TAESD. Throws Error(model) for what cannot be read.
bool is_other_vae(const std::string& path);
/// A VAE from outside the folder: a folder with the config.json of one, or a file of a TAESD, whose
/// shapes say its configuration. Throws Error(usage) with the option's name for anything else.
Component open_other_vae(const std::string& path, const std::string& part, const char* option);

}  // namespace tessera::load
