#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/fail.h"
#include "study/subjects.h"

namespace tessera {
namespace {

struct Measurement {
  std::vector<double> seconds;
  int64_t peak_bytes = 0;
};

GenerateRequest of_batch(const GenerateRequest& request, const study::Subjects& subjects,
                         int batch) {
  GenerateRequest batch_request = request;
  batch_request.classes.clear();
  batch_request.prompts.clear();
  for (int i = 0; i < batch; ++i) subjects.ask(i, batch_request);
  return batch_request;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

void measure_speed(const std::string& name, const RunOptions& options, const SpeedRequest& request,
                   const std::function<void(const PlanSpeed&)>& line, const std::stop_token& stop) {
  for (int batch : request.batches)
    require(batch >= 1 && batch <= 100000, ErrorCode::usage,
            "a batch of {} images: expected 1 to 100000", batch);
  require(request.rounds >= 1 && request.rounds <= 10000, ErrorCode::usage,
          "{} rounds: expected 1 to 10000", request.rounds);
  // Rising: a model's peak covers all earlier batches.
  const std::set<int> batches(request.batches.begin(), request.batches.end());
  std::vector<Plan> plans = request.plans;
  if (plans.empty()) plans.emplace_back();
  RunControl control;
  control.stop = stop;
  std::map<std::pair<int, size_t>, Measurement> measurements;
  for (int round = 0; round < request.rounds; ++round)
    for (size_t p = 0; p < plans.size(); ++p) {
      RunOptions run = options;
      run.plan = plans[p];
      run.keep_parts = true;
      Model model = Model::open(name, run, stop);
      const auto subjects = study::subjects_of(name, model.classes());
      GenerateRequest first = of_batch(request.generate, *subjects, 1);
      first.steps = std::min(first.steps.value_or(2), 2);
      model.generate(first, control);
      for (int batch : batches) {
        GenerateResult result =
            model.generate(of_batch(request.generate, *subjects, batch), control);
        Measurement& entry = measurements[{batch, p}];
        auto& phases = result.report.phase_seconds;
        entry.seconds.push_back(phases[Phase::denoise] + phases[Phase::decode]);
        entry.peak_bytes = std::max(entry.peak_bytes, result.report.peak_bytes.total);
      }
    }
  for (const auto& [key, entry] : measurements) {
    const double seconds = median(entry.seconds);
    line({.plan = to_string(plans[key.second]),
          .batch = key.first,
          .seconds = seconds,
          .images_per_second = key.first / seconds,
          .peak_bytes = entry.peak_bytes});
  }
}

}  // namespace tessera
