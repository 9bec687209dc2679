#include <cmath>

#include "load/weight_store.h"
#include "load/weights_file.h"
#include "whole/diffusers_golden.h"

// FLUX.1-Fill and FLUX.1-Kontext against diffusers; tools/make_flux_edit_golden.py made the runs.
namespace tessera {
namespace {

using base::Json;
using golden::Scratch;
using load::SafetensorsFile;
using tensor::Tensor;

namespace fs = std::filesystem;

const std::string kRoot = TESSERA_TEST_DATA "/features/flux_edit/";
const std::string kImages = TESSERA_TEST_DATA "/features/image/";
const std::string kModel = TESSERA_TEST_DATA "/diffusers/flux_dev/model";

void write_json(const std::string& path, const Json& json) { std::ofstream(path) << json.dump(); }

// The folder of flux_dev as that of another pipeline.
std::string folder_of(const Scratch& scratch, const std::string& pipeline) {
  const std::string folder = scratch / pipeline;
  fs::copy(kModel, folder, fs::copy_options::recursive);
  Json index = base::read_json(kModel + "/model_index.json");
  index["_class_name"] = pipeline;
  write_json(folder + "/model_index.json", index);
  return folder;
}

// The network with a first layer for the masked image and the mask: 320 columns by a formula.
void widen(const std::string& folder) {
  const std::string part = folder + "/transformer/";
  std::map<std::string, Tensor> weights;
  for (const auto& entry : fs::directory_iterator(kModel + "/transformer"))
    if (entry.path().extension() == ".safetensors") {
      const SafetensorsFile file(entry.path().string());
      for (const auto& [name, one] : file.entries()) weights[name] = file.get(name);
      fs::remove(part + entry.path().filename().string());
    }
  fs::remove(part + "diffusion_pytorch_model.safetensors.index.json");
  const Tensor narrow = weights.at("x_embedder.weight");
  const std::vector<float> own = narrow.to_floats();
  const int64_t rows = narrow.size(0), columns = narrow.size(1), more = 320;
  std::vector<float> wide;
  for (int64_t i = 0; i < rows; ++i) {
    wide.insert(wide.end(), own.begin() + i * columns, own.begin() + (i + 1) * columns);
    for (int64_t j = 0; j < more; ++j)
      wide.push_back(static_cast<float>(0.1 * std::sin(0.7 * double(i) + 1.3 * double(j))));
  }
  weights["x_embedder.weight"] = Tensor::from(std::span<const float>(wide), {rows, columns + more});
  load::write_safetensors(part + "diffusion_pytorch_model.safetensors", weights);
  Json config = base::read_json(kModel + "/transformer/config.json");
  config["in_channels"] = columns + more;
  config["out_channels"] = columns;
  write_json(part + "config.json", config);
}

GenerateRequest request_of(const Json& run, const Scratch& scratch) {
  GenerateRequest q;
  q.embeddings = kImages + "text_flux_dev.safetensors";
  q.steps = run["steps"].get<int>();
  q.guidance = run["guidance"].get<float>();
  q.width = run["width"];
  q.height = run["height"];
  q.count = run["count"];
  q.seed = run["seed"];
  q.decode = false;
  q.save_latents = scratch / "latents.safetensors";
  q.overwrite = true;
  return q;
}

void compare(const std::string& model, const GenerateRequest& q, const std::string& name,
             const std::string& plan = "") {
  RunOptions options = golden::options(Precision::f32);
  if (!plan.empty()) options.plan = parse_plan(plan);
  Model::open(model, options).generate(q);
  const Tensor expected = SafetensorsFile(kRoot + "io.safetensors").get(name);
  const Tensor made = SafetensorsFile(q.save_latents).get("latents");
  EXPECT_EQ(made.shape(), expected.shape());
  EXPECT_LT(golden::l2_error(made.to_floats(), expected.to_floats()), 1e-3) << name << plan;
}

std::string refusal(const std::string& model, const GenerateRequest& q,
                    const std::string& plan = "") {
  try {
    RunOptions options = golden::options(Precision::f32);
    options.plan = parse_plan(plan);
    Model::open(model, options).generate(q);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was refused";
}

TEST(FluxEditGolden, FillPaintsAsDiffusersDoes) {
  const Scratch scratch;
  const std::string model = folder_of(scratch, "FluxFillPipeline");
  widen(model);
  const Json runs = base::read_json(kRoot + "case.json")["fill"];
  for (size_t i = 0; i < runs.size(); ++i) {
    GenerateRequest q = request_of(runs[i], scratch);
    q.images = {{.file = kImages + "image.png"}};
    q.mask = InputImage{.file = kImages + "mask_hard.png"};
    if (runs[i]["strength"].get<double>() < 1) q.strength = runs[i]["strength"].get<double>();
    for (const char* plan : {"", "ulysses=2", "pipefusion=2,patches=2,warmup=9"})
      compare(model, q, "fill." + std::to_string(i), plan);
  }
  GenerateRequest q = request_of(runs[0], scratch);
  EXPECT_NE(refusal(model, q).find("paints the masked region"), std::string::npos);
  q.images = {{.file = kImages + "image.png"}};
  EXPECT_NE(refusal(model, q).find("paints the masked region"), std::string::npos);
}

TEST(FluxEditGolden, KontextFollowsAnImageAsDiffusersDoes) {
  const Scratch scratch;
  const std::string model = folder_of(scratch, "FluxKontextPipeline");
  const Json runs = base::read_json(kRoot + "case.json")["kontext"];
  for (size_t i = 0; i < runs.size(); ++i) {
    GenerateRequest q = request_of(runs[i], scratch);
    if (runs[i]["image"].get<bool>()) q.images = {{.file = kImages + "image.png"}};
    compare(model, q, "kontext." + std::to_string(i));
  }
  GenerateRequest q = request_of(runs[0], scratch);
  q.images.assign(2, {.file = kImages + "image.png"});
  EXPECT_NE(refusal(model, q).find("takes 1 reference image"), std::string::npos);
}

std::vector<float> latents(const std::string& model, const GenerateRequest& q,
                           const std::string& plan) {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan(plan);
  return Model::open(model, options).generate(q).latents;
}

// Extra tokens of Kontext, and extra channels of Fill, under every plan.
TEST(FluxEditGolden, PlansComputeWhatOneRankDoes) {
  const Scratch scratch;
  const Json described = base::read_json(kRoot + "case.json");
  const std::string text = golden::with_negative(kImages + "text_flux_dev.safetensors", scratch);
  for (const bool fill : {false, true}) {
    const std::string model = folder_of(scratch, fill ? "FluxFillPipeline" : "FluxKontextPipeline");
    if (fill) widen(model);
    GenerateRequest q = request_of(described[fill ? "fill" : "kontext"][0], scratch);
    q.save_latents.clear();
    q.embeddings = text;
    q.true_guidance = 2;
    q.steps = 2;
    q.count = 1;
    q.images = {{.file = kImages + "image.png"}};
    if (fill) q.mask = InputImage{.file = kImages + "mask_hard.png"};
    const std::vector<float> one = latents(model, q, "");
    for (const char* plan : {"cfg=2,ulysses=2", "shard=2", "pipefusion=2,patches=3,warmup=9"})
      EXPECT_EQ(latents(model, q, plan), one) << plan << fill;
    for (const char* plan : {"ulysses=2,ring=2", "cfg=2,tensor=2"})
      EXPECT_LT(golden::l2_error(latents(model, q, plan), one), 1e-4) << plan << fill;
    const double stale = golden::l2_error(latents(model, q, "pipefusion=2,patches=2"), one);
    EXPECT_TRUE(stale > 0 && stale < 0.5) << fill << " " << stale;
    q.true_guidance = 1;
    EXPECT_NE(refusal(model, q, "cfg=2").find("cfg=2"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
