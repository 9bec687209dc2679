#include <filesystem>
#include <memory>
#include <optional>

#include "base/fail.h"
#include "base/stopwatch.h"
#include "engine/model_state.h"
#include "evaluation/critic.h"
#include "evaluation/paired.h"
#include "evaluation/unpaired.h"
#include "load/safetensors.h"
#include "load/tensor_set.h"
#include "load/weight_store.h"
#include "ops/elementwise.h"

namespace tessera {
namespace {

using tensor::DType;
using tensor::Tensor;

/// What a plan made, picture by picture.
struct Made {
  std::vector<std::vector<float>> latents;
  std::vector<Picture> pictures;
  int64_t rows = 0, peak_bytes = 0;
  double seconds = 0;
};

/// A critic, and what it sees in real pictures.
struct Judge {
  evaluation::Critic critic;
  std::optional<evaluation::Moments> real, real_spatial;
  Tensor real_features;
};

evaluation::Moments moments_in(const load::SafetensorsFile& file, const std::string& prefix,
                               int64_t width) {
  const auto numbers = [&](const std::string& name, const tensor::Shape& shape) {
    const Tensor x = file.get(name);
    require(x.shape() == shape && tensor::is_float(x.dtype()), ErrorCode::model,
            "{}: '{}' is {} {}; expected floats {}", file.path(), name, tensor::name_of(x.dtype()),
            x.shape().str(), shape.str());
    const std::vector<float> values = x.to_floats();
    return std::vector<double>(values.begin(), values.end());
  };
  return {numbers(prefix + "mean", {width}), numbers(prefix + "covariance", {width, width})};
}

void read_reference(const std::string& path, Judge& judge) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  const auto& config = judge.critic.config();
  int64_t side = config.input;
  for (size_t i = 0; i < config.widths.size(); ++i) side = (side + 1) / 2;
  const load::SafetensorsFile file(path);
  judge.real = moments_in(file, "", config.hidden);
  judge.real_spatial = moments_in(
      file, "spatial_", side * side * std::min(evaluation::kSpatialChannels, config.widths.back()));
  judge.real_features = ops::cast(file.get("features"), DType::f32);
  require(judge.real_features.rank() == 2 && judge.real_features.size(1) == config.hidden,
          ErrorCode::model, "{}: 'features' is {}; expected [n, {}]", path,
          judge.real_features.shape().str(), config.hidden);
}

std::unique_ptr<Judge> judge_of(const std::string& model) {
  const std::filesystem::path folder =
      std::filesystem::path(engine::resolve_model(model)) / "critic";
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return nullptr;
  const std::string config = (folder / "config.json").string();
  const load::WeightStore store;
  auto judge = std::make_unique<Judge>(
      Judge{evaluation::Critic(evaluation::parse_critic_config(base::read_json(config), config),
                               *store.open(load::open_component(folder.string()))),
            {},
            {},
            {}});
  read_reference((folder / "reference.safetensors").string(), *judge);
  return judge;
}

Made make(Model& model, const EvalRequest& request, int64_t classes, const std::stop_token& stop) {
  Made made;
  const base::Stopwatch clock;
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
    made.peak_bytes = std::max(made.peak_bytes, result.report.peak_bytes["total"]);
  }
  made.seconds = clock.seconds();
  return made;
}

// What the critic sees in all pictures; one at a time, so that memory does not grow with them.
void look(const Judge& judge, const std::vector<Picture>& pictures, int unpaired_from,
          PlanQuality& quality) {
  int64_t right = 0;
  std::vector<Tensor> logits, features, spatial;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const Picture& p = pictures[i];
    Tensor x = Tensor::empty({1, p.height, p.width, 3}, DType::f32);
    for (size_t j = 0; j < p.rgb.size(); ++j) x.data<float>()[j] = float(p.rgb[j]) / 255;
    const evaluation::Sight sight = judge.critic.see(x);
    right += evaluation::best_class(sight.logits)[0] == int(i) % int(judge.critic.config().classes);
    logits.push_back(sight.logits);
    features.push_back(sight.features);
    spatial.push_back(sight.spatial);
  }
  quality.recognised = double(right) / double(pictures.size());
  if (!judge.real || static_cast<int>(pictures.size()) < unpaired_from) return;
  const Tensor seen = ops::concat_rows(features);
  quality.frechet = evaluation::frechet_distance(evaluation::moments(seen), *judge.real);
  quality.spatial_frechet = evaluation::frechet_distance(
      evaluation::moments(ops::concat_rows(spatial)), *judge.real_spatial);
  quality.inception_score = evaluation::inception_score(ops::concat_rows(logits));
  const evaluation::Overlap overlap = evaluation::overlap(seen, judge.real_features);
  quality.precision = overlap.precision;
  quality.recall = overlap.recall;
}

PlanQuality compare(const Made& made, const Made& sync, const Judge* judge, int unpaired_from) {
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
  if (judge && !made.pictures.empty()) look(*judge, made.pictures, unpaired_from, quality);
  quality.rows = made.rows;
  quality.rows_share = sync.rows > 0 ? double(made.rows) / double(sync.rows) : 1;
  quality.seconds = made.seconds;
  quality.peak_bytes = made.peak_bytes;
  return quality;
}

}  // namespace

void evaluate(const std::string& name, const RunOptions& options, const EvalRequest& request,
              const std::function<void(const PlanQuality&)>& line, const std::stop_token& stop) {
  require(request.pictures >= 1 && request.pictures <= 1000000 && request.batch >= 1,
          ErrorCode::usage, "{} pictures in batches of {}: expected 1 or more of each",
          request.pictures, request.batch);
  const auto judge = judge_of(name);
  Made sync;
  for (size_t i = 0; i <= request.plans.size(); ++i) {
    RunOptions run = options;
    run.plan = i == 0 ? Plan{} : request.plans[i - 1];
    run.keep_parts = true;
    Model model = Model::open(name, run);
    const int64_t classes = model.classes();
    require(classes > 0, ErrorCode::model, "'{}' has no classes to draw from", name);
    Made other;
    Made& made = i == 0 ? sync : other;
    made = make(model, request, classes, stop);
    PlanQuality quality = compare(made, sync, judge.get(), request.unpaired_from);
    quality.plan = to_string(run.plan);
    line(quality);
  }
}

}  // namespace tessera
