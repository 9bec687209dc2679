#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "base/json.h"
#include "models/registry.h"
#include "nn/packing_weights.h"
#include "tessera/error.h"

namespace tessera::models::tiny {

using tensor::DType;
using tensor::Tensor;

/// Weights of any name and shape, small and different from each other.
class AnyWeights : public nn::PackingWeights {
 public:
  explicit AnyWeights(std::string lacks = "") : lacks_(std::move(lacks)) {}
  bool has(const std::string& name) const override {
    return lacks_.empty() || !name.starts_with(lacks_);
  }
  Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
    Tensor x = Tensor::empty(shape, DType::f32);
    const auto start = static_cast<float>(std::hash<std::string>{}(name) % 1000);
    for (int64_t i = 0; i < x.elements(); ++i)
      x.data<float>()[i] = 0.3f * std::sin(start + 1.3f * static_cast<float>(i));
    return x;
  }

 private:
  std::string lacks_;
};

inline std::unique_ptr<TextEncoder> make(const std::string& type, const base::Json& config,
                                         const std::string& lacks = "text_model.") {
  return text_encoder_of(type, {config, "config.json"}, std::make_shared<AnyWeights>(lacks),
                         DType::f32);
}

/// Tokens [from, to) of row `row`.
inline std::vector<float> tokens(const Tensor& x, int64_t row, int64_t from, int64_t to) {
  return x.slice(0, row, row + 1).slice(1, from, to).contiguous().to_floats();
}

inline std::string refusal(const std::string& type, const base::Json& config) {
  try {
    make(type, config);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    return e.what();
  }
  return "nothing was refused";
}

}  // namespace tessera::models::tiny
