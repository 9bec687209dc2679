#include "ops/permute.h"
#include "whole/diffusers_golden.h"

namespace tessera {
namespace {

using golden::Scratch;
using load::SafetensorsFile;
using tensor::Tensor;

// A whole run of a reference case, from its stored embeddings.
struct WholeRun {
  std::string folder;
  base::Json arguments;
  SafetensorsFile io;

  WholeRun(const std::string& at, const base::Json& run)
      : folder(at), arguments(run), io(at + "/" + run["file"].get<std::string>()) {}

  std::map<std::string, Tensor> embeddings() const {
    std::map<std::string, Tensor> found;
    if (!std::filesystem::exists(folder + "/io_text.safetensors")) return found;
    const SafetensorsFile text(folder + "/io_text.safetensors");
    for (const auto& [name, entry] : text.entries())
      for (const auto& [prefix, before] :
           {std::pair{"prompt.0.", ""}, {"prompt.1.", "negative_"}}) {
        if (!name.starts_with(prefix)) continue;
        const std::string rest = name.substr(9);
        const bool input = rest.find('.') == std::string::npos && !rest.ends_with("_ids");
        if (input) found[before + rest] = text.get(name);
      }
    return found;
  }

  // Starts from the prompt if the folder has a tokenizer, else from stored embeddings.
  bool reads_text() const { return std::filesystem::exists(folder + "/model/tokenizer"); }

  GenerateRequest request(const Scratch& scratch, bool from_prompt) const {
    std::map<std::string, Tensor> given{{"latents", io.get("latents.init")}};
    for (const auto& [name, entry] : io.entries())
      if (name.starts_with("noise.")) given[name] = io.get(name);
    load::write_safetensors(scratch / "init.safetensors", given);
    GenerateRequest q;
    q.clean_caption = false;  // as the references were made
    if (from_prompt) {
      q.prompts = {arguments["prompt"].get<std::string>()};
      const base::Json negative = arguments.value("negative_prompt", base::Json());
      if (negative.is_string()) q.negative_prompt = negative.get<std::string>();
      const base::Json type = base::read_json(folder + "/model/model_index.json")["_class_name"];
      const bool adjustable = type != "CogVideoXPipeline" && type != "HunyuanDiTPipeline";
      if (adjustable) q.text_tokens = arguments.value("max_sequence_length", 0);
    } else {
      load::write_safetensors(scratch / "text.safetensors", embeddings());
      q.embeddings = scratch / "text.safetensors";
    }
    for (const base::Json& image : arguments.value("images", base::Json::array()))
      q.images.push_back({.file = folder + "/" + image.get<std::string>()});
    q.initial_latents = scratch / "init.safetensors";
    q.trace = scratch / "trace.safetensors";
    q.height = arguments["height"];
    q.width = arguments["width"];
    q.steps = arguments["num_inference_steps"].get<int>();
    q.guidance = arguments["guidance_scale"].get<float>();
    q.true_guidance = arguments.value("true_cfg_scale", 1.0f);
    q.cfg_normalization = arguments.value("cfg_normalization", 0.0f);
    q.cfg_truncation = arguments.value("cfg_truncation", 1.0f);
    q.frames = arguments.value("num_frames", 0);
    q.count = arguments.value("num_images_per_prompt", 1);
    return q;
  }
};

// Runs from embeddings use the first prompt of each case, because only the first is stored.
std::vector<WholeRun> runs(bool from_prompt) {
  std::vector<WholeRun> found;
  for (const std::string& folder : golden::diffusers_cases("case.json", 3)) {
    const base::Json described = base::read_json(folder + "/case.json");
    base::Json all = described.value("end_to_end", base::Json::array());
    if (all.empty()) continue;
    const auto& prompts = described["text"]["prompts"];
    for (const base::Json& run : described.value("end_to_end_extra", base::Json::array()))
      all.push_back(run);
    for (const base::Json& run : all) {
      const bool there = std::filesystem::exists(folder + "/" + run["file"].get<std::string>());
      if (!there) continue;
      const base::Json negative = run.value("negative_prompt", base::Json());
      const bool second = negative.is_null() || negative == prompts[1];
      WholeRun whole(folder, run);
      const bool stored = run["prompt"] == prompts[0] && second && !whole.embeddings().empty();
      if (from_prompt ? whole.reads_text() : stored) found.push_back(whole);
    }
  }
  return found;
}

// FLUX.2's cases start with [batch, channels, lines, columns] and go on with tokens
// [batch, lines * columns, channels].
Tensor as_stored(const Tensor& x, const tensor::Shape& wanted) {
  if (x.rank() != 4 || wanted.rank() != 3) return x;
  const int64_t sizes[] = {x.size(0), x.size(1), x.size(2) * x.size(3)};
  const int order[] = {0, 2, 1};
  return ops::permute(x, sizes, order, {sizes[0], sizes[2], sizes[1]});
}

void check_runs(bool from_prompt) {
  const std::vector<WholeRun> all = runs(from_prompt);
  EXPECT_GE(all.size(), from_prompt ? 1u : 2u) << "those that travel with the tests";
  for (const WholeRun& run : all) {
    SCOPED_TRACE(run.folder + " " + run.arguments["file"].get<std::string>());
    const Scratch scratch;
    const GenerateRequest q = run.request(scratch, from_prompt);
    const GenerateResult result =
        Model::open(run.folder + "/model", golden::options(Precision::f32)).generate(q);
    const SafetensorsFile trace(q.trace);
    EXPECT_EQ(trace.get("timesteps").to_floats(), run.io.get("timesteps").to_floats());
    int compared = 0;
    for (const auto& [name, entry] : run.io.entries()) {
      const bool number = name.starts_with("latents.") && !name.starts_with("latents.init");
      if (!number && !name.starts_with("model_output.") && name != "image" && name != "video")
        continue;
      ASSERT_TRUE(trace.has(name)) << name;
      const Tensor made = as_stored(trace.get(name), run.io.get(name).shape());
      EXPECT_EQ(made.shape(), run.io.get(name).shape()) << name;
      EXPECT_LT(golden::max_error(made.to_floats(), run.io.get(name).to_floats()), 1e-3) << name;
      ++compared;
    }
    EXPECT_GE(compared, 2 * *q.steps);
    const Tensor bytes = run.io.get(run.io.has("image_u8") ? "image_u8" : "video_u8");
    std::vector<uint8_t> mine;
    for (const Image& image : result.images)
      mine.insert(mine.end(), image.rgb.begin(), image.rgb.end());
    ASSERT_EQ(static_cast<int64_t>(mine.size()), bytes.elements());
    int far = 0;
    for (size_t i = 0; i < mine.size(); ++i)
      far += std::abs(int(mine[i]) - int(bytes.data<uint8_t>()[i])) > 1;
    EXPECT_EQ(far, 0);
  }
}

TEST(PipelineGolden, WholeRunsFromEmbeddingsAreThoseOfDiffusers) { check_runs(false); }

TEST(PipelineGolden, WholeRunsFromPromptsAreThoseOfDiffusers) {
  EXPECT_GE(runs(true).size(), 1u);
  check_runs(true);
}

}  // namespace
}  // namespace tessera
