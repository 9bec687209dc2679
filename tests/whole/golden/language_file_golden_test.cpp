#include <cmath>
#include <fstream>
#include <random>

#include "completion/streamed_experts.h"
#include "load/fused_experts.h"
#include "load/gguf_model.h"
#include "load/name_tables.h"
#include "load/tensor_set.h"
#include "runtime/open_model.h"
#include "test_paths.h"
#include "whole/golden.h"
#include "whole/text_model.h"

// Language models from GGUF, by the names of llama.cpp's converters, against their folders.
namespace tessera {
namespace {

namespace fs = std::filesystem;
using golden::Scratch;
using load::GgufType;
using load::GgufTypes;

// A folder's weights in one GGUF file with names of llama.cpp.
std::string as_gguf(const std::string& folder, const std::string& type, bool apart = false,
                    const GgufTypes& types = nullptr) {
  return load::gguf_of(load::with_single_experts(load::open_component(folder)),
                       load::name_table_of(type), types, apart);
}

std::vector<float> logits(const std::string& model, const std::string& file,
                          const RunOptions& options = golden::options(Precision::f32)) {
  const Scratch scratch;
  const std::vector<int32_t> ids{3, 9, 1, 27, 14, 8, 30, 2};
  const std::map<std::string, tensor::Tensor> inputs{
      {"input_ids", tensor::Tensor::from(std::span<const int32_t>(ids), {std::ssize(ids)})}};
  load::write_safetensors(scratch / "in.safetensors", inputs);
  ForwardRequest request;
  request.component = ModelPart::model;
  request.inputs = scratch / "in.safetensors";
  request.outputs = scratch / "out.safetensors";
  Model::open(model, options, {}, {.transformer = file}).forward(request);
  return load::SafetensorsFile(request.outputs).get("logits").to_floats();
}

// A folder's files but the weights.
void copy_bare(const std::string& folder, const std::string& to) {
  fs::create_directory(to);
  for (const auto& item : fs::directory_iterator(folder))
    if (item.path().extension() != ".safetensors")
      fs::copy_file(item.path(), fs::path(to) / item.path().filename());
}

// The folder's numbers, bit by bit, from a folder without weights and a GGUF file.
void check(const std::string& name, const std::string& type, bool apart = false) {
  SCOPED_TRACE(name);
  const std::string folder = std::string(TESSERA_TEST_DATA) + "/moe/" + name + "/model";
  const Scratch scratch;
  copy_bare(folder, scratch / "bare");
  std::ofstream(scratch / "model.gguf", std::ios::binary) << as_gguf(folder, type, apart);
  EXPECT_EQ(logits(scratch / "bare", scratch / "model.gguf"), logits(folder, ""));
}

TEST(LanguageFileGolden, LladaMoe) { check("llada_moe", "LLaDAMoEModelLM"); }
TEST(LanguageFileGolden, Llada2) { check("llada2", "llada2_moe"); }
TEST(LanguageFileGolden, DiffusionGemma) { check("diffusion_gemma_canvas256", "diffusion_gemma"); }
TEST(LanguageFileGolden, GateAndUpApart) {
  check("diffusion_gemma_canvas256", "diffusion_gemma", true);
}

/// A folder of random weights in f32, of sizes that are multiples of a block, and its GGUF file.
struct RandomModel {
  Scratch scratch;
  std::string folder = scratch / "model", bare = scratch / "bare", file = scratch / "model.gguf";

  RandomModel(const std::string& name, const std::string& type, const base::Json& changes,
              const GgufTypes& types) {
    for (const std::string& made : {folder, bare}) fs::create_directory(made);
    const std::string source = std::string(TESSERA_TEST_DATA) + "/moe/" + name + "/model/";
    base::Json config = base::read_json(source + "config.json");
    config.merge_patch(changes);
    for (const std::string& made : {folder, bare})
      std::ofstream(made + "/config.json") << config.dump();
    const models::TokenSpec spec = models::language_model_of({config, name});
    const load::MetaWeights asked;
    (void)spec.make(asked, spec.whole(), tensor::DType::f32, 0);
    std::mt19937 random(7);
    std::map<std::string, tensor::Tensor> weights;
    for (const auto& [weight, shape] : asked.asked()) {
      const bool matrix = shape.rank() > 1;
      const auto width = static_cast<float>(matrix ? shape[shape.rank() - 1] : 1);
      std::normal_distribution<float> draw(matrix ? 0 : 1, matrix ? 1 / std::sqrt(width) : 0.1f);
      std::vector<float> values(static_cast<size_t>(shape.elements()));
      for (float& value : values) value = draw(random);
      weights[weight] = tensor::Tensor::from(std::span<const float>(values), shape);
    }
    load::write_safetensors(folder + "/model.safetensors", weights);
    std::ofstream(file, std::ios::binary) << as_gguf(folder, type, false, types);
  }
};

// Weights of the run, as predicted and as counted, and bytes of the largest expert.
struct Memory {
  int64_t predicted = 0, counted = 0, expert = 0;
};
Memory memory_of(const RandomModel& model, const RunOptions& options) {
  CompleteRequest q;
  q.prompt_ids = {{3, 9, 1, 27}};
  q.max_tokens = 8;
  const Model open = Model::open(model.bare, options, {}, {.transformer = model.file});
  Memory memory{open.inspect().memory.at("weights"), open.complete(q).peak_bytes.weights};
  runtime::ModelState state;
  runtime::open_model(model.bare, options, state, {.transformer = model.file});
  memory.expert = completion::expert_bytes(state).packed;
  return memory;
}

// The middle of the errors of all positions: at some of them other experts win by a hair.
double middle_error(const std::vector<float>& got, const std::vector<float>& want) {
  const std::ptrdiff_t positions = 8, each = std::ssize(want) / positions;
  std::vector<double> errors;
  for (std::ptrdiff_t at = 0; at < std::ssize(want); at += each)
    errors.push_back(golden::l2_error({got.begin() + at, got.begin() + at + each},
                                      {want.begin() + at, want.begin() + at + each}));
  std::ranges::sort(errors);
  return errors[errors.size() / 2];
}

// Logits of a model's file: exact in f32, in few bits, and of the same numbers in bf16.
struct Runs {
  std::vector<float> exact, few, in_bf16;
};
RunOptions with_blocks(const char* form) {
  RunOptions options = golden::options(Precision::bf16);
  options.quantise_rules = form;
  return options;
}
Runs runs_of(const RandomModel& model) {
  return {logits(model.bare, model.file),
          logits(model.bare, model.file, golden::options(Precision::bf16)),
          logits(model.bare, model.file, with_blocks("blocks=bf16"))};
}

// Routed experts in the few bits of a file, near its exact numbers in f32, which are those of a
// folder. `all_experts`: changes after which every token uses every expert, so that none is chosen.
void check_few_bits(const std::string& name, const std::string& type, const base::Json& changes,
                    const GgufTypes& types, int64_t most_bits, const base::Json& all_experts) {
  SCOPED_TRACE(name);
  const RandomModel model(name, type, changes, types);
  const Runs runs = runs_of(model);
  EXPECT_LT(middle_error(runs.few, runs.exact), 2e-2);
  EXPECT_NE(runs.few, runs.in_bf16);
  EXPECT_EQ(runs.few, logits(model.bare, model.file, with_blocks("blocks=int8")));
  const Memory with = memory_of(model, golden::options(Precision::bf16)),
               without = memory_of(model, with_blocks("blocks=bf16"));
  EXPECT_EQ(with.predicted, with.counted);
  EXPECT_EQ(without.predicted, without.counted);
  EXPECT_LT(with.counted, without.counted);
  EXPECT_LT(with.expert * 16, without.expert * (most_bits + 2));
  base::Json all = changes;
  all.merge_patch(all_experts);
  const Runs each = runs_of(RandomModel(name, type, all, types));
  EXPECT_LT(golden::l2_error(each.few, each.exact), 2e-2);
}

const base::Json kLladaSizes{
    {"hidden_size", 64}, {"expert_intermediate_size", 64}, {"dense_intermediate_size", 64}};
const base::Json kLlada2Sizes{{"hidden_size", 64}, {"moe_intermediate_size", 64}};
const base::Json kGemmaSizes{
    {"text_config",
     {{"hidden_size", 64}, {"moe_intermediate_size", 64}, {"intermediate_size", 64}}}};

GgufTypes all_in(GgufType type) {
  return [type](const std::string& name) {
    const bool whole = name == "token_embd.weight" || name.find("gate_inp") != std::string::npos;
    return whole ? GgufType::f32 : type;
  };
}

const base::Json kAllOfLladaMoe{{"num_experts_per_tok", 16}};
const base::Json kAllOfLlada2{{"num_experts_per_tok", 16}, {"n_group", 1}, {"topk_group", 1}};
const base::Json kAllOfGemma{{"text_config", {{"top_k_experts", 32}}}};

TEST(LanguageFileGolden, LladaMoeInFewBits) {
  check_few_bits("llada_moe", "LLaDAMoEModelLM", kLladaSizes, all_in(GgufType::q8_0), 8,
                 kAllOfLladaMoe);
  check_few_bits("llada_moe", "LLaDAMoEModelLM", kLladaSizes, all_in(GgufType::q4_0), 4,
                 kAllOfLladaMoe);
}
TEST(LanguageFileGolden, Llada2InFewBits) {
  check_few_bits("llada2", "llada2_moe", kLlada2Sizes, all_in(GgufType::q8_0), 8, kAllOfLlada2);
}
TEST(LanguageFileGolden, DiffusionGemmaInFewBits) {
  check_few_bits("diffusion_gemma_canvas256", "diffusion_gemma", kGemmaSizes,
                 all_in(GgufType::q8_0), 8, kAllOfGemma);
}
// The matrices of an expert take the form of the one with the most bits.
TEST(LanguageFileGolden, ExpertsOfTwoTypes) {
  const GgufTypes mixed = [](const std::string& name) {
    return name.find("down_exps") != std::string::npos ? GgufType::q8_0
                                                       : all_in(GgufType::q4_0)(name);
  };
  check_few_bits("llada_moe", "LLaDAMoEModelLM", kLladaSizes, mixed, 8, kAllOfLladaMoe);
}
// With one matrix in floats all of an expert are floats.
TEST(LanguageFileGolden, ExpertsWithFloatsAreFloats) {
  const RandomModel model("llada_moe", "LLaDAMoEModelLM", kLladaSizes, [](const std::string& name) {
    return name.find("down_exps") != std::string::npos ? GgufType::f32
                                                       : all_in(GgufType::q8_0)(name);
  });
  const Runs runs = runs_of(model);
  EXPECT_EQ(runs.few, runs.in_bf16);
  const Memory with = memory_of(model, golden::options(Precision::bf16));
  EXPECT_EQ(with.counted, memory_of(model, with_blocks("blocks=bf16")).counted);
  EXPECT_EQ(with.predicted, with.counted);
}
TEST(LanguageFileGolden, ExactNumbersOfNoBlocksAreRefused) {
  const RandomModel model("llada_moe", "LLaDAMoEModelLM", kLladaSizes, nullptr);
  const auto error = [&](const char* rules) {
    return golden::error_of([&] { logits(model.bare, model.file, with_blocks(rules)); });
  };
  EXPECT_NE(error("blocks=bf16").find("no GGUF file"), std::string::npos);
  EXPECT_NE(error("blocks=bf16,scores=int8").find("for pipelines of images"), std::string::npos);
}

// Families of llama.cpp share names: the file's architecture tells them apart.
TEST(LanguageFileGolden, AnotherFamilyIsRefused) {
  const std::string data = std::string(TESSERA_TEST_DATA) + "/moe/";
  const Scratch scratch;
  std::ofstream(scratch / "model.gguf", std::ios::binary)
      << as_gguf(data + "llada2/model", "llada2_moe");
  try {
    logits(data + "llada_moe/model", scratch / "model.gguf");
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    EXPECT_NE(std::string(error.what()).find("weights of a LLaDA2 model"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera
