#include <cmath>
#include <cstring>

#include "ops/elementwise.h"
#include "whole/diffusers_golden.h"

// Adapters against diffusers, peft and the published formulas; and broken ones.
namespace tessera {
namespace {

using base::Json;
using golden::Scratch;
using load::SafetensorsFile;
using tensor::Tensor;

/// A case of the reference set with its files.
struct LoraCase {
  std::string root;
  Json described, model;

  std::string folder() const { return root + "/" + model["model"].get<std::string>(); }
  std::string beside(const std::string& file) const { return folder() + "/../" + file; }
  std::string file(const Json& of) const { return root + "/" + of.get<std::string>(); }
  Model open(RunOptions options = golden::options(Precision::f32)) const {
    return Model::open(folder(), options);
  }
  ForwardRequest request(const Scratch& scratch) const {
    std::map<std::string, Tensor> given;
    const SafetensorsFile io(root + "/" + model["inputs"].get<std::string>());
    const std::string prefix = "fwd0.in.";
    for (const auto& [name, entry] : io.entries())
      if (name.starts_with(prefix)) given[name.substr(prefix.size())] = io.get(name);
    ForwardRequest q;
    q.inputs = scratch / "in.safetensors";
    load::write_safetensors(q.inputs, given);
    return q;
  }
};

// The cases of the test data, and those of a whole reference set (TESSERA_GOLDEN).
std::vector<LoraCase> cases() {
  std::vector<std::string> roots{TESSERA_TEST_DATA "/features/lora"};
  if (const char* more = std::getenv("TESSERA_GOLDEN"))
    if (const std::string root = std::string(more) + "/features/lora";
        std::filesystem::exists(root))
      roots.push_back(root);
  std::vector<LoraCase> all;
  for (const std::string& root : roots) {
    const Json described = base::read_json(root + "/case.json");
    for (const Json& one : described["cases"]) {
      const std::string name = one["model"];
      if (!described["models"].contains(name)) continue;
      LoraCase found{root, one, described["models"][name]};
      if (golden::has_family(found.beside(""))) all.push_back(std::move(found));
    }
  }
  return all;
}

/// Adapters with strengths, and the prefix of the names of their results.
struct LoraRun {
  std::vector<Lora> loras;
  std::string prefix;
  Json outputs;
};

std::vector<LoraRun> runs(const LoraCase& one) {
  const Json& described = one.described;
  std::vector<LoraRun> all;
  if (described.contains("adapter"))
    for (const Json& strength : described["strengths"])
      all.push_back({{{one.file(described["file"]), strength["strength"].get<double>()}},
                     strength["prefix"],
                     strength["outputs"]});
  if (described.contains("stack")) {
    LoraRun stack{{}, described["prefix"], described["outputs"]};
    for (const Json& part : described["stack"])
      stack.loras.push_back({one.file(part["file"]), part["strength"].get<double>()});
    all.push_back(stack);
  }
  return all;
}

bool gives(const LoraRun& run, const char* output) {
  return std::ranges::any_of(run.outputs, [&](const Json& name) { return name == output; });
}

Tensor tensor_of(const NamedTensors& tensors, const std::string& name) {
  const TensorData& data = tensors.at(name);
  std::vector<float> values(data.bytes.size() / sizeof(float));
  std::memcpy(values.data(), data.bytes.data(), data.bytes.size());
  return Tensor::from(std::span<const float>(values),
                      tensor::Shape(std::span<const int64_t>(data.shape)));
}

std::vector<float> out_of(const NamedTensors& tensors) {
  return tensor_of(tensors, "out").to_floats();
}

// diffusers multiplies kohya's alphas in the dtype of the file (SEMANTICS_FEATURES A2).
double tolerance_of(const LoraRun& run) {
  return run.loras.front().file.find("kohya") == std::string::npos ? 1e-4 : 1e-3;
}

TEST(LoraGolden, ForwardsAreThoseOfTheReferences) {
  int compared = 0;
  for (const LoraCase& one : cases())
    for (const LoraRun& run : runs(one)) {
      if (!gives(run, "fwd0.out")) continue;
      SCOPED_TRACE(run.loras.front().file + " " + run.prefix);
      const SafetensorsFile io(one.file(one.described["io"]));
      const Scratch scratch;
      ForwardRequest q = one.request(scratch);
      q.loras = run.loras;
      const std::vector<float> expected = io.get(run.prefix + "fwd0.out").to_floats();
      for (const bool merged : {false, true}) {
        q.merge_lora = merged;
        EXPECT_LT(golden::l2_error(out_of(one.open().forward(q)), expected), tolerance_of(run))
            << merged;
      }
      ++compared;
    }
  EXPECT_GE(compared, 7) << "those that travel with the tests";
}

// The CLIPs of a case for its first prompt, by the names of the pipeline's inputs.
std::map<std::string, std::vector<float>> encoded(const LoraCase& one, const LoraRun& run) {
  const SafetensorsFile text(one.beside("io_text.safetensors"));
  std::vector<Tensor> pooled, hidden;
  for (const ModelPart part : {ModelPart::text_encoder, ModelPart::text_encoder_2}) {
    const std::string name = part == ModelPart::text_encoder ? "text_encoder" : "text_encoder_2";
    if (base::read_json(one.folder() + "/model_index.json")[name][1] == "T5EncoderModel") continue;
    const Scratch scratch;
    ForwardRequest q;
    q.component = part;
    q.inputs = scratch / "ids.safetensors";
    q.loras = run.loras;
    q.trace = true;
    load::write_safetensors(q.inputs, {{"input_ids", text.get("prompt.0." + name + ".input_ids")}});
    const NamedTensors made = one.open().forward(q);
    const Tensor states = tensor_of(made, "hidden.2");
    const int64_t width = states.size(states.rank() - 1);
    hidden.push_back(states.reshape({states.elements() / width, width}));
    pooled.push_back(
        tensor_of(made, made.contains("text_embeds") ? "text_embeds" : "pooler_output"));
  }
  // Beside each other, and zeros up to the width of the T5.
  int64_t width = 0;
  for (const Tensor& x : hidden) width += x.size(1);
  if (width < 80)
    hidden.push_back(Tensor::zeros({hidden[0].size(0), 80 - width}, hidden[0].dtype()));
  return {{"pooled_prompt_embeds", ops::concat_columns(pooled).to_floats()},
          {"prompt_embeds", ops::concat_columns(hidden).to_floats()}};
}

TEST(LoraGolden, TextEncodersAreThoseOfTheReferences) {
  int compared = 0;
  for (const LoraCase& one : cases())
    for (const LoraRun& run : runs(one)) {
      if (!gives(run, "pooled_prompt_embeds")) continue;
      SCOPED_TRACE(run.loras.front().file + " " + run.prefix);
      const SafetensorsFile io(one.file(one.described["io"]));
      for (const auto& [name, values] : encoded(one, run)) {
        if (!gives(run, name.c_str())) continue;
        EXPECT_LT(golden::l2_error(values, io.get(run.prefix + name).to_floats()),
                  tolerance_of(run))
            << name;
      }
      ++compared;
    }
  if (compared == 0) GTEST_SKIP() << "TESSERA_GOLDEN names no reference set with text encoders";
}

GenerateRequest whole_run(const LoraCase& one, const Json& described, const Scratch& scratch) {
  const Tensor latents = SafetensorsFile(one.file(described["latents_init"])).get("latents.init");
  load::write_safetensors(scratch / "init.safetensors", {{"latents", latents.slice(0, 0, 1)}});
  GenerateRequest q;
  q.clean_caption = false;
  q.prompts = {described["prompt"].get<std::string>()};
  if (described["negative_prompt"].is_string())
    q.negative_prompt = described["negative_prompt"].get<std::string>();
  if (described["max_sequence_length"].is_number())
    q.text_tokens = described["max_sequence_length"];
  q.initial_latents = scratch / "init.safetensors";
  q.trace = scratch / "trace.safetensors";
  q.height = described["height"];
  q.width = described["width"];
  q.steps = described["num_inference_steps"].get<int>();
  q.guidance = described["guidance_scale"].get<float>();
  q.decode = false;
  q.loras = {{one.file(one.described["file"]), described["strength"].get<double>()}};
  return q;
}

TEST(LoraGolden, WholeRunsAreThoseOfTheReferences) {
  int compared = 0;
  for (const LoraCase& one : cases()) {
    if (!one.described.contains("end_to_end")) continue;
    const Json& described = one.described["end_to_end"];
    if (!std::filesystem::exists(one.folder() + "/tokenizer")) continue;
    SCOPED_TRACE(one.described["file"].get<std::string>());
    const Scratch scratch;
    const GenerateRequest q = whole_run(one, described, scratch);
    one.open().generate(q);
    const SafetensorsFile trace(q.trace), io(one.file(one.described["io"]));
    const std::string prefix = described["prefix"];
    for (const int step : {1, *q.steps}) {
      const std::string name = "latents." + std::to_string(step);
      EXPECT_LT(golden::l2_error(trace.get(name).to_floats(), io.get(prefix + name).to_floats()),
                1e-3)
          << name;
    }
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "TESSERA_GOLDEN names no reference set with whole runs";
}

TEST(LoraGolden, BrokenFilesAreRefusedByName) {
  int refused = 0;
  for (const LoraCase& one : cases()) {
    if (!one.described.contains("broken")) continue;
    const std::string file = one.file(one.described["broken"]);
    SCOPED_TRACE(file);
    const Scratch scratch;
    ForwardRequest q = one.request(scratch);
    q.loras = {{file, 1}};
    try {
      one.open().forward(q);
      ADD_FAILURE() << "was taken";
    } catch (const Error& e) {
      const std::string said = e.what();
      EXPECT_EQ(said.find('\n'), std::string::npos);
      for (const Json& name : one.described["message_names"])
        EXPECT_NE(said.find(name.get<std::string>()), std::string::npos) << said;
      ++refused;
    }
  }
  if (refused == 0) GTEST_SKIP() << "TESSERA_GOLDEN names no reference set with broken adapters";
}

TEST(LoraGolden, StrengthZeroGivesTheBitsOfNoAdapter) {
  const LoraCase one = cases().front();
  const Scratch scratch;
  ForwardRequest q = one.request(scratch);
  const auto run = [&] { return out_of(one.open(golden::options(Precision::bf16)).forward(q)); };
  const std::vector<float> none = run();
  q.loras = {{one.file(one.described["file"]), 0}};
  EXPECT_EQ(run(), none);
  q.loras.front().strength = 1;
  EXPECT_NE(run(), none);
}

// Tests pairs beside a product and merged ones: kohya's names of layers around the blocks,
// XLabs' pairs inside them, and a DoRA.
// The difference from the run without an adapter, over strengths: R squared of a straight line.
TEST(LoraGolden, EffectsGrowLinearlyOnInt4) {
  const LoraCase one = cases().front();
  const LoraRun run = runs(one).front();
  const Scratch scratch;
  const auto difference = [&](const Model& model, double strength) {
    ForwardRequest q = one.request(scratch);
    const auto base = out_of(model.forward(q));
    q.loras = run.loras;
    q.loras.front().strength = strength;
    auto with = out_of(model.forward(q));
    for (size_t i = 0; i < with.size(); ++i) with[i] -= base[i];
    return with;
  };
  const auto norm = [](const std::vector<float>& x) {
    double sum = 0;
    for (const float value : x) sum += double(value) * value;
    return std::sqrt(sum);
  };
  const Model int4 = one.open(golden::options(Precision::int4));
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  for (const double strength : {0.05, 0.1, 0.2, 0.3, 0.4, 0.5}) {
    const double effect = norm(difference(int4, strength));
    n += 1, x += strength, y += effect;
    xx += strength * strength, yy += effect * effect, xy += strength * effect;
  }
  const double slope = n * xy - x * y;
  EXPECT_GE(slope * slope / ((n * xx - x * x) * (n * yy - y * y)), 0.98);
  // Beside int4 weights the adapter does what it does beside those of the file, up to their error.
  const Model full = one.open();
  auto apart = difference(int4, 0.5);
  const auto whole = difference(full, 0.5);
  for (size_t i = 0; i < apart.size(); ++i) apart[i] -= whole[i];
  const auto exact = out_of(full.forward(one.request(scratch)));
  auto error = out_of(int4.forward(one.request(scratch)));
  for (size_t i = 0; i < error.size(); ++i) error[i] -= exact[i];
  EXPECT_LE(norm(apart), norm(error));
}

TEST(LoraGolden, PlansGiveTheBitsOfOneRank) {
  std::vector<Lora> loras;
  LoraCase one;
  for (const LoraCase& found : cases()) {
    const std::string name = found.described.value("adapter", "");
    if (found.root != cases().front().root || name.empty()) continue;
    one = found;
    if (name == "flux_kohya_rest" || name == "flux_comfy_down" || name == "flux_dora_peft")
      loras.push_back({found.file(found.described["file"]), 0.6});
  }
  ASSERT_EQ(loras.size(), 3u);
  const Scratch scratch;
  ForwardRequest q = one.request(scratch);
  q.loras = loras;
  const auto run = [&](const std::string& plan) {
    RunOptions options = golden::options(Precision::f32);
    options.plan = parse_plan(plan);
    return out_of(one.open(options).forward(q));
  };
  const std::vector<float> alone = run("");
  for (const char* plan :
       {"ulysses=2", "pipefusion=2", "pipefusion=4", "shard=2", "shard=4", "ulysses=2,shard=2"})
    EXPECT_EQ(run(plan), alone) << plan;
  for (const char* plan : {"tensor=2", "tensor=2,pipefusion=2"})
    EXPECT_LT(golden::l2_error(run(plan), alone), 1e-5) << plan;
}

}  // namespace
}  // namespace tessera
