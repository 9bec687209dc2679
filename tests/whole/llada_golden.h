#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "load/fused_experts.h"
#include "load/meta_weights.h"
#include "load/tensor_set.h"
#include "load/weight_store.h"
#include "models/registry.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera::golden {

/// A golden case of a language model: folder, runs and tensors.
struct LladaCase {
  explicit LladaCase(const std::string& name)
      : LladaCase(std::string(TESSERA_TEST_DATA) + "/moe/", name) {}
  LladaCase(const std::string& root, const std::string& name)
      : folder(root + name),
        json(base::read_json(folder + "/case.json")),
        io(folder + "/io.safetensors") {}

  models::TokenSpec spec(const std::string& part = "model") const {
    const std::string where = folder + "/" + part + "/config.json";
    base::Json config = base::read_json(where);
    config.update(changes);
    return models::language_model_of({config, where});
  }
  /// Loads the network in f32 after a check of names.
  std::unique_ptr<nn::TokenModel> load(const std::string& part = "model", int block = 0) const {
    const auto made = spec(part);
    const load::TensorSet tensors =
        load::with_single_experts(load::open_component(folder + "/" + part));
    const nn::Portion whole = made.whole();
    const load::MetaWeights asked(tensors);
    made.make(asked, whole, nn::DType::f32, block);
    EXPECT_EQ(load::check_names(asked, tensors, folder, made.unread), "");
    return made.make(*store.open(tensors), whole, nn::DType::f32, block);
  }
  std::vector<int32_t> ids(const std::string& name) const {
    const auto whole = io.get(name).to_ints();
    return {whole.begin(), whole.end()};
  }

  std::string folder;
  base::Json json;
  base::Json changes = base::Json::object();  ///< keys of the configuration that a test replaces
  load::SafetensorsFile io;
  load::WeightStore store;
};

}  // namespace tessera::golden
