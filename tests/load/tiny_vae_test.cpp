#include "load/tiny_vae.h"

#include <gtest/gtest.h>

#include "load/safetensors.h"
#include "load/scratch_folder.h"

namespace tessera::load {
namespace {

using tensor::Tensor;

Tensor filter(int64_t out, int64_t in) {
  return Tensor::zeros({out, in, 3, 3}, tensor::DType::f32);
}

std::string written(const ScratchFolder& folder, const std::string& name,
                    const std::map<std::string, Tensor>& tensors) {
  write_safetensors(folder.path(name), tensors);
  return folder.path(name);
}

TEST(TinyVae, MakersNamesBecomeThoseOfDiffusers) {
  const ScratchFolder folder;
  const std::map<std::string, std::map<std::string, std::string>> files{
      {"decoder alone",
       {{"1.weight", "decoder.layers.0.weight"},
        {"3.conv.0.weight", "decoder.layers.2.conv.0.weight"},
        {"19.weight", "decoder.layers.18.weight"}}},
      {"encoder alone",
       {{"0.weight", "encoder.layers.0.weight"},
        {"1.conv.0.weight", "encoder.layers.1.conv.0.weight"}}},
      {"both",
       {{"taesd_decoder.1.weight", "decoder.layers.0.weight"},
        {"taesd_encoder.0.weight", "encoder.layers.0.weight"}}},
      {"plain",
       {{"decoder.1.weight", "decoder.layers.0.weight"},
        {"decoder.3.conv.0.weight", "decoder.layers.2.conv.0.weight"},
        {"encoder.0.weight", "encoder.layers.0.weight"}}},
      {"diffusers",
       {{"decoder.layers.0.weight", "decoder.layers.0.weight"},
        {"encoder.layers.14.weight", "encoder.layers.14.weight"}}}};
  for (const auto& [what, names] : files) {
    std::map<std::string, Tensor> tensors;
    for (const auto& [theirs, ours] : names) tensors[theirs] = filter(4, 4);
    const SafetensorsFile file(written(folder, what, tensors));
    EXPECT_TRUE(is_tiny_vae(file)) << what;
    const TensorFile named = with_tiny_names(file);
    for (const auto& [theirs, ours] : names) EXPECT_TRUE(named.has(ours)) << what << ": " << ours;
  }
}

TEST(TinyVae, ShapesTellTheConfiguration) {
  const ScratchFolder folder;
  const std::string path = written(
      folder, "taef1.safetensors",
      {{"taesd_decoder.1.weight", filter(8, 16)}, {"taesd_encoder.0.weight", filter(6, 3)}});
  const Component vae = open_other_vae(path, "vae", "`vae`");
  EXPECT_EQ(vae.class_name, kTinyVae);
  EXPECT_EQ(vae.config["latent_channels"], 16);
  EXPECT_EQ(vae.config["decoder_block_out_channels"], (std::vector<int64_t>{8, 8, 8, 8}));
  EXPECT_EQ(vae.config["encoder_block_out_channels"], (std::vector<int64_t>{6, 6, 6, 6}));
}

TEST(TinyVae, OtherFilesAndFoldersAreRefused) {
  const ScratchFolder folder;
  const auto refused = [](const std::string& path) {
    try {
      open_other_vae(path, "vae", "`vae`");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_EQ(
      refused(written(folder, "other", {{"decoder.conv_in.weight", filter(4, 4)}})).find("`vae` "),
      0u);
  EXPECT_NE(refused(folder.path("nothing")), "nothing was refused");
  EXPECT_NE(refused(folder.path()), "nothing was refused");
  // The first file holds a name twice; the filter of the second file has a single axis.
  EXPECT_NE(refused(written(folder, "twice",
                            {{"decoder.1.weight", filter(4, 4)},
                             {"decoder.3.conv.0.weight", filter(4, 4)},
                             {"decoder.layers.0.weight", filter(4, 4)}}))
                .find("are both"),
            std::string::npos);
  EXPECT_NE(refused(written(folder, "flat",
                            {{"1.weight", Tensor::zeros({4}, tensor::DType::f32)},
                             {"3.conv.0.weight", filter(4, 4)}}))
                .find("expected 4"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::load
