// Products in whole numbers: --dtype int8 and int4 of pipelines, and folders of 'tessera quantise'.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "load/quantisation.h"
#include "test_paths.h"
#include "whole/diffusers_golden.h"
#include "whole/golden.h"
#include "whole/text_model.h"
#include "whole/text_pipeline.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using golden::Scratch;
using load::SafetensorsFile;
using tensor::Tensor;

std::string shipped(const std::string& name) { return std::string(TESSERA_MODELS_DIR "/") + name; }

RunOptions with(Precision precision, const std::string& rules = "", const std::string& plan = "") {
  RunOptions run = golden::options(precision);
  run.quantise_rules = rules;
  run.plan = parse_plan(plan);
  return run;
}

GenerateRequest scene() {
  GenerateRequest q;
  q.prompts = {"a red circle left of a blue square"};
  q.steps = 2;
  return q;
}

GenerateRequest shape() {
  GenerateRequest q;
  q.classes = {"3"};
  q.steps = 2;
  return q;
}

std::vector<float> forward(const std::string& folder, const SafetensorsFile& io,
                           const RunOptions& run) {
  const Scratch scratch;
  std::map<std::string, Tensor> inputs;
  const std::string prefix = "fwd0.in.";
  for (const auto& [key, entry] : io.entries())
    if (key.starts_with(prefix)) inputs[key.substr(prefix.size())] = io.get(key);
  load::write_safetensors(scratch / "in.safetensors", inputs);
  ForwardRequest request;
  request.inputs = scratch / "in.safetensors";
  request.outputs = scratch / "out.safetensors";
  Model::open(folder, run).forward(request);
  return SafetensorsFile(request.outputs).get("out").to_floats();
}

// The error that quantised weights and activations add to a forward pass, for every family.
TEST(IntegerProducts, AForwardIsNearTheReference) {
  const auto folders = golden::diffusers_cases("io_transformer.safetensors", 6);
  ASSERT_GE(folders.size(), 6u);
  for (const std::string& folder : folders) {
    const SafetensorsFile io(folder + "/io_transformer.safetensors");
    const std::string part = folder + "/model/transformer";
    const std::vector<float> want = io.get("fwd0.out").to_floats(),
                             bf16 = forward(part, io, with(Precision::bf16));
    const std::vector<float> eight = forward(part, io, with(Precision::int8)),
                             four = forward(part, io, with(Precision::int4));
    EXPECT_LT(golden::l2_error(eight, want), 0.05) << folder;
    EXPECT_LT(golden::l2_error(four, want), 0.35) << folder;
    EXPECT_NE(eight, bf16) << folder;
    EXPECT_NE(four, eight) << folder;
    const std::vector<float> attention = forward(part, io, with(Precision::int8, "mlp=bf16"));
    EXPECT_NE(attention, eight) << folder;
    EXPECT_LT(golden::l2_error(attention, want), 0.05) << folder;
  }
}

std::vector<float> encoded(const std::string& folder, ModelPart part, const RunOptions& run) {
  const Scratch scratch;
  const std::vector<int32_t> ids{3, 7, 20, 5, 9, 11, 2, 1};
  load::write_safetensors(scratch / "in.safetensors",
                          {{"input_ids", Tensor::from(std::span<const int32_t>(ids), {1, 8})}});
  ForwardRequest request;
  request.component = part;
  request.inputs = scratch / "in.safetensors";
  request.outputs = scratch / "out.safetensors";
  Model::open(folder, run).forward(request);
  return SafetensorsFile(request.outputs).get("last_hidden_state").to_floats();
}

/// Folders of pipelines whose encoders are CLIP, BERT, T5 and Qwen3, by name.
std::vector<std::pair<std::string, std::string>> text_folders() {
  static const auto pipelines = golden::text_pipelines();
  std::vector<std::pair<std::string, std::string>> folders;
  for (const auto& [name, pipeline] : pipelines) folders.emplace_back(name, pipeline->path());
  for (const char* name : {"z_image_turbo", "flux2_klein_base"})
    folders.emplace_back(name, TESSERA_TEST_DATA "/diffusers/" + std::string(name) + "/model");
  return folders;
}

TEST(IntegerProducts, TextEncodersAreNearTheirBf16) {
  for (const auto& [name, folder] : text_folders())
    for (const auto& [part, number] : {std::pair{"text_encoder", ModelPart::text_encoder},
                                       {"text_encoder_2", ModelPart::text_encoder_2},
                                       {"text_encoder_3", ModelPart::text_encoder_3}}) {
      if (!fs::exists(folder + "/" + part)) continue;
      const auto run = [&, folder = folder, number = number](Precision precision,
                                                             const char* rules = "") {
        return encoded(folder, number, with(precision, rules));
      };
      const auto bf16 = run(Precision::bf16), eight = run(Precision::int8);
      EXPECT_NE(eight, bf16) << name << part;
      EXPECT_LT(golden::l2_error(eight, bf16), 0.06) << name << part;
      // Errors of layers add up: encoders have 2 to 28.
      EXPECT_LT(golden::l2_error(run(Precision::int4), bf16), 0.5) << name << part;
      EXPECT_EQ(run(Precision::int8, "text=bf16"), bf16) << name << part;
    }
}

TEST(IntegerProducts, AFolderWithAT5HasTheBitsOfQuantisingAtLoad) {
  for (const auto& [name, pipeline] : golden::text_pipelines()) {
    if (name != "pixart") continue;
    const Scratch scratch;
    QuantiseRequest request{.output = scratch / "q"};
    request.dtype = Precision::int4;
    request.rules = "text.attn=int8";
    (void)Model::open(pipeline->path(), with(Precision::bf16)).quantise(request);
    GenerateRequest q;
    q.prompts = {"waves"};
    q.steps = 2;
    q.width = q.height = 64;
    q.decode = false;
    const GenerateResult stored = Model::open(request.output, with(Precision::bf16)).generate(q),
                         load =
                             Model::open(pipeline->path(), with(Precision::int4, "text.attn=int8"))
                                 .generate(q);
    EXPECT_EQ(stored.latents, load.latents);
    EXPECT_EQ(stored.report.products.at("text_encoder").size(), 2u);
    EXPECT_EQ(stored.report.products, load.report.products);
  }
}

TEST(IntegerProducts, ImagesOfAFolderAreThoseOfQuantisingAtLoadBitByBit) {
  for (const auto& [name, q] : {std::pair{"scenes", scene()}, {"shapes", shape()}})
    for (const Precision precision : {Precision::int8, Precision::int4}) {
      const Scratch scratch;
      const std::string out = scratch / "q";
      QuantiseRequest request{.output = out};
      request.dtype = precision;
      const QuantiseResult made =
          Model::open(shipped(name), with(Precision::bf16)).quantise(request);
      EXPECT_LT(made.bytes, made.bytes_before);
      const Model load = Model::open(shipped(name), with(precision)),
                  stored = Model::open(out, with(Precision::bf16));
      const GenerateResult a = load.generate(q), b = stored.generate(q);
      EXPECT_EQ(a.images.at(0).rgb, b.images.at(0).rgb) << name;
      EXPECT_EQ(a.latents, b.latents) << name;
      EXPECT_NE(a.latents, Model::open(shipped(name), with(Precision::bf16)).generate(q).latents);
      EXPECT_EQ(a.report.products, b.report.products);
      ASSERT_TRUE(a.report.products.contains("transformer"));
      const std::string form = precision == Precision::int8 ? "int8" : "int4";
      EXPECT_GT(a.report.products.at("transformer").at(form), 0);
      const bool modulations = form == "int4" && name == std::string("scenes");
      EXPECT_EQ(a.report.products.at("transformer").size(), modulations ? 2u : 1u) << "in int8";
      EXPECT_EQ(a.report.products.contains("text_encoder"), name == std::string("scenes"));
      EXPECT_EQ(a.report.peak_bytes.weights, b.report.peak_bytes.weights);
      RunOptions mapped = with(Precision::bf16);
      mapped.map_weights = true;
      EXPECT_EQ(Model::open(out, mapped).generate(q).latents, b.latents) << name;
    }
}

TEST(IntegerProducts, MemoryIsPredictedAsItIsCounted) {
  const Scratch scratch;
  const std::string out = scratch / "q";
  QuantiseRequest request{.output = out};
  request.dtype = Precision::int8;
  request.rules = "mlp=int4";
  (void)Model::open(shipped("scenes"), with(Precision::bf16)).quantise(request);
  int64_t bf16 = 0;
  for (const auto& [model, run] : {std::pair{shipped("scenes"), with(Precision::bf16)},
                                   {shipped("scenes"), with(Precision::int8)},
                                   {shipped("scenes"), with(Precision::int4)},
                                   {shipped("scenes"), with(Precision::int8, "mlp=int4")},
                                   {out, with(Precision::bf16)}}) {
    const Model open = Model::open(model, run);
    const Inspection seen = open.inspect(scene());
    const Report ran = open.generate(scene()).report;
    EXPECT_EQ(seen.memory.at("weights"), ran.peak_bytes.weights);
    if (bf16 == 0)
      bf16 = ran.peak_bytes.weights;
    else
      EXPECT_LT(ran.peak_bytes.weights, bf16);
    EXPECT_EQ(seen.components.empty(), false);
  }
}

TEST(IntegerProducts, RanksAreOneRankBitByBit) {
  for (const char* rules : {"", "mlp=int4"}) {
    const RunOptions alone = with(Precision::int8, rules);
    const auto scenes = Model::open(shipped("scenes"), alone).generate(scene()).latents,
               shapes = Model::open(shipped("shapes"), alone).generate(shape()).latents;
    for (const char* plan : {"cfg=2", "ulysses=2", "pipefusion=2,warmup=2", "shard=2"})
      EXPECT_EQ(Model::open(shipped("scenes"), with(Precision::int8, rules, plan))
                    .generate(scene())
                    .latents,
                scenes)
          << plan << rules;
    for (const char* plan : {"expert=2", "cfg=2,expert=2"})
      EXPECT_EQ(Model::open(shipped("shapes"), with(Precision::int8, rules, plan))
                    .generate(shape())
                    .latents,
                shapes)
          << plan << rules;
    RunOptions threads = alone;
    threads.threads = 1;
    EXPECT_EQ(Model::open(shipped("scenes"), threads).generate(scene()).latents, scenes);
  }
}

TEST(IntegerProducts, ScoresInInt8AreNearAndEqualOnRanks) {
  const auto latents = [](const std::string& model, const std::string& rules, const char* plan) {
    return Model::open(shipped(model), with(Precision::bf16, rules, plan))
        .generate(model == "scenes" ? scene() : shape())
        .latents;
  };
  for (const char* model : {"scenes", "shapes"}) {
    const auto exact = latents(model, "", ""), alone = latents(model, "scores=int8", "");
    EXPECT_NE(alone, exact) << model;
    EXPECT_LT(golden::l2_error(alone, exact), 0.02) << model;
    for (const char* plan : {"cfg=2", "ulysses=2", "pipefusion=2,warmup=2"})
      EXPECT_EQ(latents(model, "scores=int8", plan), alone) << model << ' ' << plan;
    EXPECT_LT(golden::l2_error(latents(model, "scores=int8", "ring=2"), exact), 0.02) << model;
  }
}

TEST(IntegerProducts, AForwardWithScoresInInt8IsNearTheReference) {
  for (const std::string& folder : golden::diffusers_cases("io_transformer.safetensors", 6)) {
    const SafetensorsFile io(folder + "/io_transformer.safetensors");
    const std::string part = folder + "/model/transformer";
    const std::vector<float> want = io.get("fwd0.out").to_floats(),
                             got = forward(part, io, with(Precision::bf16, "scores=int8"));
    EXPECT_NE(got, forward(part, io, with(Precision::bf16))) << folder;
    EXPECT_LT(golden::l2_error(got, want), 0.03) << folder;
  }
}

double psnr(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want) {
  double square = 0;
  for (size_t i = 0; i < want.size(); ++i) square += std::pow(double(got[i]) - want[i], 2);
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(want.size()) / square);
}

TEST(IntegerProducts, FiltersInInt8AreNearAndEqualOnRanks) {
  for (const auto& [name, q] : {std::pair{"scenes", scene()}, {"shapes", shape()}}) {
    const Model open = Model::open(shipped(name), with(Precision::bf16, "vae=int8"));
    const GenerateResult bf16 = Model::open(shipped(name), with(Precision::bf16)).generate(q),
                         eight = open.generate(q);
    EXPECT_EQ(eight.latents, bf16.latents) << name;
    EXPECT_NE(eight.images.at(0).rgb, bf16.images.at(0).rgb) << name;
    EXPECT_GT(psnr(eight.images.at(0).rgb, bf16.images.at(0).rgb), 40) << name;
    EXPECT_GT(eight.report.products.at("vae").at("int8"), 5) << name;
    EXPECT_FALSE(bf16.report.products.contains("vae")) << name;
    const std::string two = name == std::string("scenes") ? "ulysses=2" : "expert=2";
    const auto rgb = [&, name = name, q = q](const std::string& plan) {
      return Model::open(shipped(name), with(Precision::bf16, "vae=int8", plan))
          .generate(q)
          .images.at(0)
          .rgb;
    };
    EXPECT_EQ(rgb(two), eight.images.at(0).rgb) << name;
    // Norms sum the bands of ranks in another order.
    EXPECT_GT(psnr(rgb(two + ",vae=2"), eight.images.at(0).rgb), 40) << name;
  }
}

TEST(IntegerProducts, TensorParallelRanksAreNear) {
  const Scratch scratch;
  const std::string out = scratch / "q";
  QuantiseRequest request{.output = out};
  request.dtype = Precision::int8;
  (void)Model::open(shipped("scenes"), with(Precision::bf16)).quantise(request);
  const auto alone = Model::open(out, with(Precision::bf16)).generate(scene()).latents,
             ranks =
                 Model::open(out, with(Precision::bf16, "", "tensor=2")).generate(scene()).latents,
             load = Model::open(shipped("scenes"), with(Precision::int8, "", "tensor=2"))
                        .generate(scene())
                        .latents;
  EXPECT_LT(golden::l2_error(ranks, alone), 0.05);
  EXPECT_EQ(ranks, load) << "rows that are cut have the scales of the whole ones";
}

TEST(IntegerProducts, RulesChooseProductsOneByOne) {
  const auto products = [](const std::string& rules, Precision precision = Precision::bf16) {
    return Model::open(shipped("scenes"), with(precision, rules)).generate(scene()).report.products;
  };
  const auto all = products("", Precision::int8), attention = products("attn=int8"),
             both = products("attn=int8,mlp=int4");
  EXPECT_EQ(attention.size(), 1u);
  EXPECT_LT(attention.at("transformer").at("int8"), all.at("transformer").at("int8"));
  EXPECT_EQ(both.at("transformer").at("int8"), attention.at("transformer").at("int8"));
  EXPECT_EQ(both.at("transformer").at("int8") + both.at("transformer").at("int4"),
            all.at("transformer").at("int8"));
  const auto four = products("", Precision::int4),
             old = products("modulation=bf16", Precision::int4);
  EXPECT_EQ(four.at("transformer").at("int8"), 16) << "two of each block";
  EXPECT_EQ(four.at("transformer").at("int4"), all.at("transformer").at("int8"));
  EXPECT_FALSE(old.at("transformer").contains("int8"));
  const auto but_one = products("transformer_blocks.0.*=bf16", Precision::int8);
  EXPECT_LT(but_one.at("transformer").at("int8"), all.at("transformer").at("int8"));
  EXPECT_EQ(products("text=bf16", Precision::int8).size(), 1u);
}

TEST(IntegerProducts, AFolderThatWouldNotChangeIsRefused) {
  const Scratch scratch;
  QuantiseRequest request{.output = scratch / "q"};
  for (const char* key : {"scores", "vae"}) {
    request.rules = "attn=int8," + std::string(key) + "=int8";
    EXPECT_NE(golden::error_of([&] {
                Model::open(shipped("scenes"), with(Precision::bf16)).quantise(request);
              }).find(std::string(key) + " is not stored"),
              std::string::npos);
  }
  request.rules.clear();
  request.dtype = Precision::int8;
  const auto quantise = [&](const std::string& model) {
    return golden::error_of([&] { Model::open(model, with(Precision::bf16)).quantise(request); });
  };
  EXPECT_NE(quantise(shipped("tasks-b")).find("`dtype`"), std::string::npos);
  (void)Model::open(shipped("scenes"), with(Precision::bf16)).quantise(request);
  const std::string made = request.output;
  request.output = scratch / "again";
  EXPECT_NE(quantise(made).find("is quantised already"), std::string::npos);
  request.output = scratch / "none";
  request.dtype.reset();
  request.rules = "attn=bf16";
  EXPECT_NE(quantise(shipped("scenes")).find("nothing would be quantised"), std::string::npos);
  EXPECT_FALSE(fs::exists(scratch / "none"));
}

}  // namespace
}  // namespace tessera
