#include "load/gguf_language.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "gguf_metadata.h"
#include "scratch_folder.h"
#include "test_paths.h"

namespace tessera::load {
namespace {

using base::Json;

struct Published {
  const char* architecture;
  const char* folder;
  std::vector<std::string> tensors;
};
const std::vector<Published>& all_published() {
  static const std::vector<Published> all{
      {"llada-moe", "llada_moe", {"output.weight", "blk.0.attn_q_norm.weight"}},
      {"llada2",
       "llada2",
       {"output.weight", "blk.0.attn_q_norm.weight", "blk.1.ffn_gate_shexp.weight"}},
      {"diffusion-gemma", "diffusion_gemma_canvas256", {}}};
  return all;
}
Json folder_config(const Published& family) {
  return base::read_json(std::string(TESSERA_TEST_DATA) + "/moe/" + family.folder +
                         "/model/config.json");
}

std::string gguf_file(const ScratchFolder& scratch, const Published& family, const Metadata& keys) {
  const Json config = folder_config(family);
  const std::vector<float> factors =
      config.contains("text_config") ? rope_factors(config) : std::vector<float>{1};
  GgufImage image;
  image.architecture(family.architecture);
  write_keys(keys, image);
  image.floats("token_embd.weight", {96, 1}, std::vector<float>(96));
  image.floats("rope_freqs.weight", {std::ssize(factors)}, factors);
  for (const std::string& name : family.tensors)
    image.floats(name, {16, 1}, std::vector<float>(16));
  scratch.write("x.gguf", image.bytes());
  return scratch.path("x.gguf");
}

// Values of the folder are the same in both.
void expect_same(const Json& made, const Json& folder) {
  int same = 0;
  for (const auto& [key, value] : made.items()) {
    SCOPED_TRACE(key);
    if (key == "eos_token_id" || key == "architectures" || key == "moe_layer_freq") continue;
    if (!folder.contains(key)) continue;
    if (value.is_object()) {
      expect_same(value, folder.at(key));
    } else if (key != "vocab_size") {
      EXPECT_EQ(value, folder.at(key));
    }
    ++same;
  }
  EXPECT_GE(same, 2);
}

TEST(GgufLanguage, ConfigsAreThoseOfTheFolders) {
  const ScratchFolder scratch;
  for (const Published& family : all_published()) {
    SCOPED_TRACE(family.architecture);
    const Json config = folder_config(family);
    const std::string path =
        gguf_file(scratch, family, keys_of_config(family.architecture, config));
    EXPECT_EQ(described_architecture(path), family.architecture);
    const GgufModel model = read_gguf_model(path);
    expect_same(model.config, config);
    EXPECT_TRUE(model.tokenizer.is_null());
    if (config.contains("text_config")) {
      EXPECT_EQ(model.generation.at("sampler_config").at("entropy_bound"), 0.1);
    } else {
      EXPECT_EQ(model.config.at("eos_token_id"), Json::array({92}));
    }
  }
  EXPECT_EQ(described_architectures(), "llada-moe, llada2, diffusion-gemma");
}

// A model without a required key is refused by the key's name.
TEST(GgufLanguage, MissingKeysAreNamed) {
  const ScratchFolder scratch;
  const std::set<std::string> may_be_missing = {
      ".attention.causal",           ".attention.value_length",
      ".attention.value_length_swa", ".rope.dimension_count_swa",
      ".attention.shared_kv_layers", ".embedding_length_per_layer_input",
      ".expert_shared_count",        ".expert_shared_feed_forward_length"};
  for (const Published& family : all_published()) {
    const Metadata all = keys_of_config(family.architecture, folder_config(family));
    for (const auto& [key, value] : all) {
      SCOPED_TRACE(key);
      Metadata keys = all;
      keys.erase(key);
      const std::string path = gguf_file(scratch, family, keys);
      const std::string part = key.substr(std::min(key.size(), key.find('.')));
      const bool optional = may_be_missing.contains(part) || key.starts_with("tokenizer.") ||
                            (key.starts_with("diffusion.") && key != "diffusion.canvas_length") ||
                            key == "llada-moe.feed_forward_length" ||
                            (part == ".rope.dimension_count" && !key.starts_with("llada2"));
      if (optional)
        (void)read_gguf_model(path);
      else
        expect_says(model_error([&] { (void)read_gguf_model(path); }), "lack '" + key + "'");
    }
  }
}

TEST(GgufLanguage, OtherValuesAreRefused) {
  const ScratchFolder scratch;
  const auto error = [&](size_t at, const std::string& key, const Json& value) {
    const Published& family = all_published()[at];
    Metadata keys = keys_of_config(family.architecture, folder_config(family));
    keys[family.architecture + key] = value;
    const std::string path = gguf_file(scratch, family, keys);
    return model_error([&] { (void)read_gguf_model(path); });
  };
  expect_says(error(0, ".expert_gating_func", 2), "expert_gating_func' is 2; expected 1");
  expect_says(error(0, ".attention.key_length", 16), "attention.key_length' is 16; expected 8");
  expect_says(error(0, ".expert_capacity", 2), "the key 'llada-moe.expert_capacity' is not known");
  expect_says(error(1, ".attention.causal", true), "attention.causal' is true");
  expect_says(error(1, ".rope.scaling.type", "yarn"), "rope.scaling.type");
  expect_says(error(1, ".expert_weights_norm", false), "expert_weights_norm");
  expect_says(error(2, ".attention.shared_kv_layers", 1), "shared_kv_layers' is 1");
  expect_says(error(2, ".attention.head_count_kv", {1, 2, 3}), "one number for a type of layers");
  expect_says(error(2, ".attention.sliding_window_pattern", {true}), "a truth for each layer");
}

TEST(GgufLanguage, TensorsThatDescribeAreRequired) {
  const ScratchFolder scratch;
  const auto error = [&](const Published& family, const char* tensor) {
    GgufImage image;
    image.architecture(family.architecture);
    write_keys(keys_of_config(family.architecture, folder_config(family)), image);
    image.floats(tensor, {3}, {1, 1, 2});
    scratch.write("x.gguf", image.bytes());
    return model_error([&] { (void)read_gguf_model(scratch.path("x.gguf")); });
  };
  expect_says(error(all_published()[0], "a"), "token_embd.weight is missing");
  expect_says(error(all_published()[2], "a"), "rope_freqs.weight");
  expect_says(error(all_published()[2], "rope_freqs.weight"), "8 factors");
}

// Ling 2 has the names and keys of LLaDA2, and is autoregressive.
TEST(GgufLanguage, LingIsNotTakenForLlada2) {
  const ScratchFolder scratch;
  const Published ling{"bailingmoe2", "llada2", all_published()[1].tensors};
  Metadata keys;
  for (const auto& [key, value] : keys_of_config("llada2", folder_config(ling)))
    keys[key.starts_with("llada2") ? "bailingmoe2" + key.substr(6) : key] = value;
  EXPECT_EQ(read_gguf_model(gguf_file(scratch, ling, keys)).config.at("model_type"), "llada2_moe");
  keys.erase("bailingmoe2.attention.causal");
  expect_says(model_error([&] { (void)read_gguf_model(gguf_file(scratch, ling, keys)); }),
              "lack 'bailingmoe2.attention.causal'");
}

TEST(GgufLanguage, OtherArchitecturesAreNotDescribed) {
  const ScratchFolder scratch;
  const Published flux{"flux", "llada2", {}};
  const std::string path = gguf_file(scratch, flux, {});
  EXPECT_EQ(described_architecture(path), "");
  expect_says(model_error([&] { (void)read_gguf_model(path); }),
              "general.architecture' is \"flux\"");
}

}  // namespace
}  // namespace tessera::load
