#include <chrono>
#include <filesystem>
#include <memory>

#include "base/fail.h"
#include "engine/model_state.h"
#include "evaluation/critic.h"
#include "evaluation/paired.h"
#include "load/tensor_set.h"
#include "load/weight_store.h"

namespace tessera {
namespace {

using tensor::DType;
using tensor::Tensor;
using Clock = std::chrono::steady_clock;

/// What a plan made, picture by picture.
struct Made {
  std::vector<std::vector<float>> latents;
  std::vector<Picture> pictures;
  int64_t rows = 0;
  double seconds = 0;
};

std::unique_ptr<evaluation::Critic> critic_of(const std::string& model) {
  const std::filesystem::path folder =
      std::filesystem::path(engine::resolve_model(model)) / "critic";
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return nullptr;
  const std::string config = (folder / "config.json").string();
  const load::WeightStore store;
  return std::make_unique<evaluation::Critic>(
      evaluation::parse_critic_config(base::read_json(config), config),
      *store.open(load::open_component(folder.string())));
}

Made make(Model& model, const EvalRequest& request, int64_t classes, const std::stop_token& stop) {
  Made made;
  const auto begin = Clock::now();
  RunControl control;
  control.stop = stop;
  for (int first = 0; first < request.pictures; first += request.batch) {
    GenerateRequest one = request.generate;
    one.seed += static_cast<uint64_t>(first / request.batch);
    one.classes.clear();
    const int count = std::min(request.batch, request.pictures - first);
    for (int i = 0; i < count; ++i) one.classes.push_back(std::to_string((first + i) % classes));
    GenerateResult result = model.generate(one, control);
    const size_t size = result.latents.size() / static_cast<size_t>(count);
    for (int i = 0; i < count; ++i)
      made.latents.emplace_back(result.latents.begin() + static_cast<int64_t>(size) * i,
                                result.latents.begin() + static_cast<int64_t>(size) * (i + 1));
    for (Picture& picture : result.pictures) made.pictures.push_back(std::move(picture));
    for (const auto& layer : result.report.layers) made.rows += layer.rows;
  }
  made.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return made;
}

double recognised(const evaluation::Critic& critic, const std::vector<Picture>& pictures) {
  int64_t right = 0;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const Picture& p = pictures[i];
    Tensor x = Tensor::empty({1, p.height, p.width, 3}, DType::f32);
    for (size_t j = 0; j < p.rgb.size(); ++j) x.data<float>()[j] = float(p.rgb[j]) / 255;
    right += evaluation::best_class(critic(x))[0] == int(i) % int(critic.config().classes);
  }
  return double(right) / double(pictures.size());
}

PlanQuality compare(const Made& made, const Made& sync, const evaluation::Critic* critic) {
  PlanQuality quality;
  std::vector<double> errors, ratios;
  for (size_t i = 0; i < made.latents.size(); ++i)
    errors.push_back(evaluation::relative_error(made.latents[i], sync.latents[i]));
  for (size_t i = 0; i < made.pictures.size(); ++i)
    ratios.push_back(evaluation::psnr(made.pictures[i].rgb, sync.pictures[i].rgb));
  const auto error = evaluation::interval(errors), ratio = evaluation::interval(ratios);
  quality.pictures = static_cast<int>(made.latents.size());
  quality.latent_error = error.mean;
  quality.latent_error_half = error.half;
  quality.psnr = ratio.mean;
  quality.psnr_half = ratio.half;
  if (critic && !made.pictures.empty()) quality.recognised = recognised(*critic, made.pictures);
  quality.rows = made.rows;
  quality.rows_share = sync.rows > 0 ? double(made.rows) / double(sync.rows) : 1;
  quality.seconds = made.seconds;
  return quality;
}

}  // namespace

void evaluate(const std::string& name, const RunOptions& options, const EvalRequest& request,
              const std::function<void(const PlanQuality&)>& line, const std::stop_token& stop) {
  require(request.pictures >= 1 && request.pictures <= 1000000 && request.batch >= 1,
          ErrorCode::usage, "{} pictures in batches of {}: expected 1 or more of each",
          request.pictures, request.batch);
  const auto critic = critic_of(name);
  Made sync;
  for (size_t i = 0; i <= request.plans.size(); ++i) {
    RunOptions run = options;
    run.plan = i == 0 ? Plan{} : request.plans[i - 1];
    Model model = Model::open(name, run);
    const int64_t classes = model.classes();
    require(classes > 0, ErrorCode::model, "'{}' has no classes to draw from", name);
    Made made = make(model, request, classes, stop);
    if (i == 0) sync = std::move(made);
    PlanQuality quality = compare(i == 0 ? sync : made, sync, critic.get());
    quality.plan = to_string(run.plan);
    line(quality);
  }
}

}  // namespace tessera
