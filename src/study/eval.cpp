#include <memory>

#include "base/fail.h"
#include "base/stopwatch.h"
#include "evaluation/paired.h"
#include "study/subjects.h"

namespace tessera {
namespace {

/// Results of a plan, image by image.
struct PlanSamples {
  std::vector<std::vector<float>> latents;
  std::vector<Image> images;
  std::vector<bool> right;  // images with the requested content
  int64_t assignments = 0, peak_bytes = 0;
  double seconds = 0;
};

PlanSamples make(Model& model, const EvalRequest& request, const study::Subjects& subjects,
                 const std::stop_token& stop) {
  PlanSamples samples;
  const base::Stopwatch clock;
  RunControl control;
  control.stop = stop;
  for (int first = 0; first < request.images; first += request.batch) {
    GenerateRequest batch_request = request.generate;
    batch_request.seed += static_cast<uint64_t>(first / request.batch);
    batch_request.classes.clear();
    batch_request.prompts.clear();
    const int count = std::min(request.batch, request.images - first);
    for (int i = 0; i < count; ++i) subjects.ask(first + i, batch_request);
    GenerateResult result = model.generate(batch_request, control);
    const size_t size = result.latents.size() / static_cast<size_t>(count);
    for (int i = 0; i < count; ++i)
      samples.latents.emplace_back(result.latents.begin() + static_cast<int64_t>(size) * i,
                                   result.latents.begin() + static_cast<int64_t>(size) * (i + 1));
    for (Image& image : result.images) samples.images.push_back(std::move(image));
    for (const auto& layer : result.report.layers) samples.assignments += layer.assignments;
    samples.peak_bytes = std::max(samples.peak_bytes, result.report.peak_bytes.total);
  }
  samples.seconds = clock.seconds();
  return samples;
}

void count_right(const std::vector<bool>& right, const std::vector<bool>& sync,
                 PlanQuality& quality) {
  if (right.empty()) return;
  std::vector<double> recognised, changes;
  for (size_t i = 0; i < right.size(); ++i) {
    recognised.push_back(double(right[i]));
    changes.push_back(double(right[i]) - double(sync[i]));
  }
  const auto change = evaluation::interval(changes);
  quality.recognised = evaluation::interval(recognised).mean;
  quality.recognised_change = change.mean;
  quality.recognised_change_half = change.half;
}

PlanQuality compare(PlanSamples& samples, const PlanSamples& sync, const study::Subjects& subjects,
                    int unpaired_from) {
  PlanQuality quality;
  std::vector<double> errors, ratios;
  for (size_t i = 0; i < samples.latents.size(); ++i)
    errors.push_back(evaluation::relative_error(samples.latents[i], sync.latents[i]));
  for (size_t i = 0; i < samples.images.size(); ++i)
    ratios.push_back(evaluation::psnr(samples.images[i].rgb, sync.images[i].rgb));
  const auto error = evaluation::interval(errors), ratio = evaluation::interval(ratios);
  quality.images = static_cast<int>(samples.latents.size());
  quality.latent_error = error.mean;
  quality.latent_error_half = error.half;
  quality.psnr = ratio.mean;
  quality.psnr_half = ratio.half;
  if (!samples.images.empty())
    samples.right = subjects.judge(samples.images, unpaired_from, quality);
  count_right(samples.right, sync.right, quality);
  quality.assignments = samples.assignments;
  quality.assignments_share =
      sync.assignments > 0 ? double(samples.assignments) / double(sync.assignments) : 1;
  quality.seconds = samples.seconds;
  quality.peak_bytes = samples.peak_bytes;
  return quality;
}

}  // namespace

void evaluate(const std::string& name, const RunOptions& options, const EvalRequest& request,
              const std::function<void(const PlanQuality&)>& line, const std::stop_token& stop) {
  require(request.images >= 1 && request.images <= 1000000 && request.batch >= 1, ErrorCode::usage,
          "{} images in batches of {}: expected 1 or more of each", request.images, request.batch);
  std::unique_ptr<study::Subjects> subjects;
  PlanSamples sync;
  for (size_t i = 0; i <= request.plans.size(); ++i) {
    RunOptions run = options;
    run.plan = i == 0 ? Plan{} : request.plans[i - 1];
    run.keep_parts = true;
    Model model = Model::open(name, run, stop);
    if (!subjects) subjects = study::subjects_of(name, model.classes());
    PlanSamples other;
    PlanSamples& samples = i == 0 ? sync : other;
    samples = make(model, request, *subjects, stop);
    PlanQuality quality = compare(samples, sync, *subjects, request.unpaired_from);
    quality.plan = to_string(run.plan);
    line(quality);
  }
}

}  // namespace tessera
