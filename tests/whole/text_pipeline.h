#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "load/meta_weights.h"
#include "models/named_noise.h"
#include "models/registry.h"
#include "runtime/resolve_model.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera::golden {

inline base::Json random_t5(int64_t width, int64_t layers) {
  return {{"architectures", base::Json::array({"T5EncoderModel"})},
          {"vocab_size", 504},
          {"d_model", width},
          {"d_kv", 8},
          {"d_ff", 3 * width},
          {"num_layers", layers},
          {"num_heads", 3},
          {"feed_forward_proj", "gated-gelu"}};
}

inline base::Json random_clip(int64_t width, int64_t layers) {
  return {{"architectures", base::Json::array({"CLIPTextModel"})},
          {"vocab_size", 563},
          {"hidden_size", width},
          {"intermediate_size", 2 * width},
          {"num_hidden_layers", layers},
          {"num_attention_heads", 2},
          {"max_position_embeddings", 77},
          {"eos_token_id", 562}};
}

/// A pipeline of the tests with text encoders of noise weights, and tokenizers of other models.
class TextPipeline {
 public:
  struct Part {
    std::string name, tokenizer;  ///< "" or "_2", "_3"; the tokenizer's model
    base::Json config;
  };
  /// `like`: a folder; `pipeline`: the class, if the folder names none.
  TextPipeline(const std::string& like, const std::string& pipeline,
               const std::vector<Part>& parts) {
    namespace fs = std::filesystem;
    fs::copy(like, path(), fs::copy_options::recursive);
    base::Json index{{"_class_name", pipeline}};
    if (fs::exists(path() + "/model_index.json"))
      index = base::read_json(path() + "/model_index.json");
    for (const char* own : {"transformer", "scheduler"})
      if (!index.contains(own))
        index[own] = {
            "diffusers",
            base::read_json(path() + "/" + own + "/" +
                            (own == std::string("scheduler") ? "scheduler_" : "") + "config.json")
                .at("_class_name")};
    for (const char* own : {"text_encoder", "tokenizer"})
      if (fs::exists(path() + "/" + own) && !index.contains(own))
        index[own] = {"transformers",
                      own == std::string("tokenizer") ? "BertTokenizer" : "BertModel"};
    for (const Part& part : parts) {
      index["text_encoder" + part.name] = {"transformers", part.config.at("architectures")[0]};
      index["tokenizer" + part.name] = {"transformers", "Tokenizer"};
      fs::copy(part.tokenizer, path() + "/tokenizer" + part.name, fs::copy_options::recursive);
      make_encoder(path() + "/text_encoder" + part.name, part.config);
    }
    std::ofstream(path() + "/model_index.json") << index.dump();
  }
  std::string path() const { return scratch_ / "model"; }

 private:
  static void make_encoder(const std::string& folder, const base::Json& config) {
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/config.json") << config.dump();
    const auto asked = std::make_shared<load::MetaWeights>();
    models::text_encoder_of(config["architectures"][0], {config, folder}, asked, tensor::DType::f32)
        ->encode({{0}, {1}, 1});
    std::map<std::string, tensor::Tensor> weights;
    for (const auto& [name, shape] : asked->asked())
      weights[name] = models::NamedNoise().get(name, shape);
    load::write_safetensors(folder + "/model.safetensors", weights);
  }
  Scratch scratch_;
};

/// Pipelines of SD3, FLUX, PixArt and HunyuanDiT, each with all of its text encoders.
inline std::vector<std::pair<std::string, std::shared_ptr<const TextPipeline>>> text_pipelines() {
  const std::string data = TESSERA_TEST_DATA "/diffusers/",
                    words = data + "cogvideox_2b/model/tokenizer",
                    scenes = runtime::resolve_model("scenes"), pairs = scenes + "/tokenizer";
  using Parts = std::vector<TextPipeline::Part>;
  const auto made = [](const std::string& like, const char* type, const Parts& parts) {
    return std::make_shared<const TextPipeline>(like, type, parts);
  };
  return {{"sd3", made(scenes, "", {{"_3", words, random_t5(128, 5)}})},
          {"flux", made(data + "flux_dev/model", "",
                        {{"", pairs, random_clip(40, 4)}, {"_2", words, random_t5(40, 6)}})},
          {"pixart", made(data + "pixart_alpha/model", "", {{"", words, random_t5(32, 5)}})},
          {"hunyuan", made(data + "hunyuandit_v11/model", "HunyuanDiTPipeline",
                           {{"_2", words, random_t5(24, 6)}})}};
}

}  // namespace tessera::golden
