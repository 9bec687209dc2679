#include <algorithm>
#include <stdexcept>

#include "load/meta_weights.h"
#include "load/weight_store.h"
#include "models/registry.h"
#include "whole/diffusers_golden.h"

namespace tessera {
namespace {

using tensor::DType;
using tensor::Tensor;

// A text encoder of a reference case with results of each layer.
struct Case {
  std::string folder, part, name;
  base::Json config;
  load::SafetensorsFile io;

  std::string trace(const std::string& what) const { return "trace." + name + "." + what; }
  std::unique_ptr<models::TextEncoder> encoder(std::shared_ptr<const nn::Weights> weights,
                                               DType dtype) const {
    return models::text_encoder_of(config["architectures"][0], {config, part}, std::move(weights),
                                   dtype);
  }
  models::TextBatch batch() const {
    const Tensor ids = io.get(trace("input_ids"));
    models::TextBatch batch{{}, {ids.size(1)}, ids.size(1)};
    for (const int64_t id : ids.to_ints()) batch.ids.push_back(static_cast<int32_t>(id));
    if (io.has(trace("attention_mask"))) {
      const auto mask = io.get(trace("attention_mask")).to_ints();
      batch.visible[0] = std::count(mask.begin(), mask.end(), 1);
    }
    return batch;
  }
};

bool has_encoder(const std::string& part) {
  if (!std::filesystem::exists(part + "/config.json")) return false;
  const base::Json config = base::read_json(part + "/config.json");
  return std::ranges::any_of(models::text_encoders(), [&](const auto& family) {
    return config["architectures"][0] == family.type;
  });
}

std::vector<Case> cases() {
  std::vector<Case> found;
  for (const std::string& folder : golden::diffusers_cases("io_text.safetensors", 5, true))
    for (const std::string name : {"text_encoder", "text_encoder_2", "text_encoder_3"}) {
      const std::string part = folder + "/model/" + name;
      const load::SafetensorsFile io(folder + "/io_text.safetensors");
      if (has_encoder(part) && io.has("trace." + name + ".input_ids"))
        found.push_back({folder, part, name, base::read_json(part + "/config.json"), io});
    }
  if (found.size() < 3) throw std::runtime_error("fewer than three text encoders");
  return found;
}

TEST(TextEncoderGolden, EveryLayerIsThatOfTransformers) {
  for (const Case& c : cases())
    for (const auto& tried : {std::pair{DType::f32, 1e-4}, {DType::bf16, 3e-2}}) {
      const DType dtype = tried.first;
      const double limit = tried.second;
      SCOPED_TRACE(c.part);
      const auto error = [&](const Tensor& got, const std::string& name) {
        const auto want = c.io.get(c.trace(name)).to_floats(), mine = got.to_floats();
        return dtype == DType::f32 ? golden::max_error(mine, want) : golden::l2_error(mine, want);
      };
      int layers = 0;
      const auto states = c.encoder(load::WeightStore().open(load::open_component(c.part)), dtype)
                              ->encode(c.batch(), [&](const std::string& name, const Tensor& x) {
                                EXPECT_LT(error(x, name), limit) << name;
                                ++layers;
                              });
      EXPECT_GE(layers, 3);
      EXPECT_LT(error(states.last, "last_hidden_state"), limit);
      if (c.io.has(c.trace("text_embeds"))) {
        EXPECT_LT(error(states.projected, "text_embeds"), limit);
      }
      if (c.io.has(c.trace("pooler_output"))) {
        EXPECT_LT(error(states.pooled, "pooler_output"), limit);
      }
    }
}

TEST(TextEncoderGolden, AsksForEveryTensorOfTheFolderAndNoOther) {
  for (const Case& c : cases()) {
    const load::TensorSet tensors = load::open_component(c.part);
    const auto asked = std::make_shared<load::MetaWeights>(tensors);
    const auto encoder = c.encoder(asked, DType::bf16);
    encoder->encode(c.batch());
    EXPECT_EQ(load::check_names(*asked, tensors, c.part, encoder->unused()), "");
  }
}

}  // namespace
}  // namespace tessera
