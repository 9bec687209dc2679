#include "load/quantisation.h"

#include <gtest/gtest.h>

#include "scratch_folder.h"

namespace tessera::load {
namespace {

using base::Json;
using tensor::DType;
using tensor::Tensor;

TEST(Quantisation, TheKeyIsReadAndTakenOut) {
  const ScratchFolder folder;
  folder.write("config.json",
               R"({"z": 1, "model_type": "m", "quantization_config": null, "a": Infinity})");
  const std::string text = quantised_config(folder.path("config.json"), false);
  EXPECT_LT(text.find("\"z\""), text.find("\"model_type\"")) << "keys stay where they are";
  Json config = base::parse_json(text, "c");
  const Quantised read = take_quantisation(config, "c");
  EXPECT_EQ(read.experts, DType::i8);
  EXPECT_EQ(read.dense, std::nullopt);
  EXPECT_FALSE(config.contains("quantization_config"));
  EXPECT_EQ(config["model_type"], "m");
  EXPECT_EQ(take_quantisation(config, "c").experts, std::nullopt);
  config = base::parse_json(quantised_config(folder.path("config.json"), true), "c");
  EXPECT_EQ(take_quantisation(config, "c").dense, DType::i8);
}

TEST(Quantisation, OfOthersStays) {
  for (const Json& value : {Json(), Json(true), Json{{"quant_method", "bitsandbytes"}},
                            Json{{"quant_method", 3}}, Json::object()}) {
    Json config{{"quantization_config", value}};
    EXPECT_EQ(take_quantisation(config, "c").experts, std::nullopt);
    EXPECT_EQ(config["quantization_config"], value);
  }
}

TEST(Quantisation, NamesWhatThisBuildDoesNotRead) {
  for (const Json& experts : {Json("int2"), Json(), Json(8)}) {
    Json config{{"quantization_config", {{"quant_method", "tessera"}, {"experts", experts}}}};
    const std::string said = model_error([&] { take_quantisation(config, "here/config.json"); });
    expect_says(said, "here/config.json");
    expect_says(said, "reads \"int8\"");
    config["quantization_config"] = {
        {"quant_method", "tessera"}, {"experts", "int8"}, {"dense", experts}};
    expect_says(model_error([&] { take_quantisation(config, "c"); }), "'dense'");
  }
}

TEST(Quantisation, ScalesBelongToWholeNumbers) {
  const ScratchFolder folder;
  write_safetensors(folder.path("model.safetensors"), {{"a", Tensor::zeros({2, 4}, DType::i8)},
                                                       {"a_scale", Tensor::zeros({2}, DType::f32)},
                                                       {"b", Tensor::zeros({2, 4}, DType::f32)},
                                                       {"b_scale", Tensor::zeros({2}, DType::f32)},
                                                       {"c", Tensor::zeros({2, 4}, DType::i8)}});
  const TensorSet tensors = open_component(folder.path());
  EXPECT_TRUE(is_quantised(tensors, "a"));
  EXPECT_TRUE(holds_scales(tensors, "a_scale"));
  for (const char* name : {"b", "c", "a_scale", "none"})
    EXPECT_FALSE(is_quantised(tensors, name)) << name;
  for (const char* name : {"b_scale", "a", "_scale"})
    EXPECT_FALSE(holds_scales(tensors, name)) << name;
  EXPECT_EQ(packed_as(tensors, "a", DType::bf16), DType::bf16) << "the folder does not say so";
  TensorSet said = tensors;
  said.hold_dense_in_int8();
  EXPECT_EQ(packed_as(said, "a", DType::bf16), DType::i8);
  EXPECT_EQ(packed_as(said, "b", DType::bf16), DType::bf16);
}

}  // namespace
}  // namespace tessera::load
