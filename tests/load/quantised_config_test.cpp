#include "load/quantised_config.h"

#include <gtest/gtest.h>

#include "scratch_folder.h"
#include "tensor/tensor.h"

namespace tessera::load {
namespace {

using base::Json;
using tensor::DType;
using tensor::Tensor;

TEST(QuantisedConfig, TheKeyIsReadAndTakenOut) {
  const ScratchFolder folder;
  folder.write("config.json",
               R"({"z": 1, "model_type": "m", "quantization_config": null, "a": Infinity})");
  const Component part{.name = "model", .folder = folder.path()};
  const std::string text = quantised_config(part, {});
  EXPECT_LT(text.find("\"z\""), text.find("\"model_type\"")) << "keys stay where they are";
  Json config = base::parse_json(text, "c");
  const Quantised read = take_quantisation(config, "c");
  EXPECT_EQ(read.experts, DType::i8);
  EXPECT_EQ(read.dense, std::nullopt);
  EXPECT_FALSE(config.contains("quantization_config"));
  EXPECT_EQ(config["model_type"], "m");
  EXPECT_EQ(take_quantisation(config, "c").experts, std::nullopt);
  config = base::parse_json(quantised_config(part, {.dense = true, .panels = true}), "c");
  EXPECT_EQ(config["quantization_config"]["order"], "panels");
  EXPECT_EQ(take_quantisation(config, "c").dense, DType::i8);
  EXPECT_FALSE(read.int4);
  config = base::parse_json(quantised_config(part, {.int4 = true, .dense = true}), "c");
  EXPECT_EQ(config["quantization_config"]["experts"], "int4");
  const Quantised nibbles = take_quantisation(config, "c");
  EXPECT_EQ(nibbles.experts, DType::i8) << "what they are multiplied in";
  EXPECT_EQ(nibbles.dense, DType::i8);
  EXPECT_TRUE(nibbles.int4);
}

// A folder without a description gets that of the file; weights without integers have no key.
TEST(QuantisedConfig, TheDescriptionOfAFileIsWritten) {
  const ScratchFolder folder;
  Component part{.name = "transformer", .folder = folder.path()};
  part.config = {{"_class_name", "T"}, {"num_layers", 3}};
  part.described = false;
  const Json config =
      base::parse_json(quantised_config(part, {.experts = false, .rules = "blocks=int8"}), "c");
  EXPECT_EQ(config["num_layers"], 3);
  EXPECT_EQ(config["quantization_config"]["rules"], "blocks=int8");
  EXPECT_EQ(base::parse_json(quantised_config(part, {.experts = false}), "c"), part.config);
}

TEST(QuantisedConfig, OfOthersStays) {
  for (const Json& value : {Json(), Json(true), Json{{"quant_method", "bitsandbytes"}},
                            Json{{"quant_method", 3}}, Json::object()}) {
    Json config{{"quantization_config", value}};
    EXPECT_EQ(take_quantisation(config, "c").experts, std::nullopt);
    EXPECT_EQ(config["quantization_config"], value);
  }
}

TEST(QuantisedConfig, NamesWhatThisBuildDoesNotRead) {
  for (const Json& experts : {Json("int2"), Json(), Json(8)}) {
    Json config{{"quantization_config", {{"quant_method", "tessera"}, {"experts", experts}}}};
    const std::string said = model_error([&] { take_quantisation(config, "here/config.json"); });
    expect_says(said, "here/config.json");
    expect_says(said, "reads \"int8\"");
    config["quantization_config"] = {
        {"quant_method", "tessera"}, {"experts", "int8"}, {"dense", experts}};
    expect_says(model_error([&] { take_quantisation(config, "c"); }), "'dense'");
  }
  Json config{{"quantization_config",
               {{"quant_method", "tessera"}, {"experts", "int4"}, {"dense", "int4"}}}};
  expect_says(model_error([&] { take_quantisation(config, "c"); }), "'dense'");
  for (const Json& order : {Json("tiles"), Json(), Json(1)}) {
    config["quantization_config"] = {
        {"quant_method", "tessera"}, {"experts", "int8"}, {"order", order}};
    expect_says(model_error([&] { take_quantisation(config, "c"); }), "order of weights");
  }
}

}  // namespace
}  // namespace tessera::load
