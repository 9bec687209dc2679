#pragma once

#include <string>

#include "load/diffusers_folder.h"
#include "load/tensor_file.h"

namespace tessera::load {

inline constexpr const char* kTinyVae = "AutoencoderTiny";
/// This part of a folder only decodes previews.
inline constexpr const char* kPreviewVae = "preview_vae";

/// Returns whether a file holds the weights of a TAESD, by the names of diffusers
/// ("decoder.layers.0.weight") or of the maker: a decoder or encoder alone ("1.weight",
/// "3.conv.0.weight"), or under "taesd_decoder.", "taesd_encoder.", "decoder." and "encoder.".
bool is_tiny_vae(const TensorFile& file);
/// Renames the tensors as in diffusers. Throws Error(model) if two tensors get the same name.
TensorFile with_tiny_names(const TensorFile& file);
/// Returns whether a path is a folder or a TAESD file. Throws Error(model) for an unreadable file.
bool is_other_vae(const std::string& path);
/// Opens a VAE from outside the folder: a folder with a VAE's config.json, or a TAESD file, whose
/// shapes give the configuration. Throws Error(usage) with the option's name for anything else.
Component open_other_vae(const std::string& path, const std::string& part, const char* option);

}  // namespace tessera::load
