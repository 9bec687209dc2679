#include "plan.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "arguments.h"
#include "progress.h"
#include "server/option_names.h"
#include "tessera/prediction.h"

namespace tessera::cli {
namespace {

struct Options {
  std::string model, optimise = "latency", quality = "exact", plan, sweep, score;
  std::string timeline, recording, load;
  Precision dtype = Precision::bf16;
  PredictionRequest request;
  int threads = 0, most = 64;
  double deadline = 0;
  bool json = false, overwrite = false, calibrate = false;
};

constexpr int kShown = 20;  // table rows; JSON has all plans

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 100 ? "%.3g" : "%.0f", value);
  return text;
}

// A language model has columns for the prompt, all passes and a single pass.
void print_head(size_t width, bool text) {
  std::printf("%-*s  %8s  %8s  %8s  %8s  %7s  %8s  %9s\n", static_cast<int>(width), "plan",
              "seconds", text ? "prompt" : "text", text ? "passes" : "denoise",
              text ? "a pass" : "decode", "waiting", "GB/rank", "GB sent");
}

bool of_text(const Prediction& prediction) {
  return !prediction.plans.empty() && prediction.plans.front().passes > 0;
}

void print_plan(const PredictedPlan& p, size_t width) {
  std::printf("%-*s  %8s  %8s  %8s  %8s  %6.0f%%  %8.2f  %9.3g\n", static_cast<int>(width),
              p.plan.empty() ? "one rank" : p.plan.c_str(), seconds(p.seconds()).c_str(),
              seconds(p.text).c_str(), seconds(p.denoising).c_str(),
              seconds(p.passes > 0 ? p.pass_seconds : p.decoding).c_str(), 100 * p.waiting,
              static_cast<double>(p.rank_bytes) / 1e9, p.sent_bytes / 1e9);
}

size_t width_of(const Prediction& prediction) {
  size_t width = 8;
  for (const PredictedPlan& p : prediction.plans) width = std::max(width, p.plan.size());
  return width;
}

void print_links(const PredictedPlan& best) {
  std::printf("\nGB over each link under %s\n", best.plan.empty() ? "one rank" : best.plan.c_str());
  for (const auto& [link, bytes] : best.link_bytes)
    if (bytes > 0) std::printf("  %-16s %.4g\n", link.c_str(), bytes / 1e9);
}

void print(const Prediction& prediction) {
  if (!prediction.plans.empty()) {
    const size_t width = width_of(prediction);
    print_head(width, of_text(prediction));
    for (size_t i = 0; i < prediction.plans.size() && i < kShown; ++i)
      print_plan(prediction.plans[i], width);
    if (prediction.plans.size() > kShown)
      std::printf("and %zu more (--json has all)\n", prediction.plans.size() - kShown);
    if (!prediction.plans.front().link_bytes.empty()) print_links(prediction.plans.front());
  }
  if (!prediction.refused.empty()) std::printf("\nRefused\n");
  size_t count = 0;
  for (const RefusedPlan& r : prediction.refused) {
    if (++count > kShown) break;
    std::printf("  %s: %s\n", r.plan.empty() ? "one rank" : r.plan.c_str(),
                server::in_options(r.reason).c_str());
  }
  if (prediction.refused.size() > kShown)
    std::printf("  and %zu more (--json has all)\n", prediction.refused.size() - kShown);
}

// Parses "ranks=1..64" to {1, 64}.
std::pair<int, int> range_of(const std::string& text) {
  constexpr std::string_view kRanks = "ranks=";
  int first = 0, last = 0;
  const char *at = text.data(), *const end = at + text.size();
  if (text.starts_with(kRanks)) {
    const auto [middle, error] = std::from_chars(at + kRanks.size(), end, first);
    if (error == std::errc() &&
        std::string_view(middle, static_cast<size_t>(end - middle)).starts_with("..")) {
      const auto [rest, wrong] = std::from_chars(middle + 2, end, last);
      if (wrong == std::errc() && rest == end && first >= 1 && last >= first && last <= 512)
        return {first, last};
    }
  }
  throw Error(ErrorCode::usage, "--sweep " + text + ": expected ranks=FIRST..LAST, as ranks=1..64");
}

RunOptions run_of(const Options& o) {
  RunOptions run;
  run.precision = o.dtype;
  run.threads = o.threads;
  return run;
}

// Runs powers of two and the ends of the range.
void sweep(Options& o, const std::stop_token& stop) {
  const auto [first, last] = range_of(o.sweep);
  std::vector<int> counts{first};
  for (int n = 1; n <= last; n *= 2)
    if (n > first) counts.push_back(n);
  if (counts.back() != last) counts.push_back(last);
  for (const int ranks : counts) {
    o.request.ranks = ranks;
    const Prediction prediction = predict_plans(o.model, run_of(o), o.request, {}, stop);
    if (!o.json && ranks == first)
      std::printf("%5s  ", "ranks"), print_head(40, of_text(prediction));
    if (o.json)
      std::printf("%s\n", to_json(prediction).c_str());
    else if (prediction.plans.empty())
      std::printf("%5d  none runs: %s\n", ranks,
                  prediction.refused.empty()
                      ? ""
                      : server::in_options(prediction.refused.front().reason).c_str());
    else
      std::printf("%5d  ", ranks), print_plan(prediction.plans.front(), 40);
    flush_results();
  }
}

void deadline(Options& o, const std::stop_token& stop) {
  const Prediction prediction =
      fewest_ranks(o.model, run_of(o), o.request, o.deadline, o.most, stop);
  if (prediction.plans.empty())
    throw Error(ErrorCode::plan,
                "--deadline " + seconds(o.deadline) + ": no plan of 1 " +
                    (o.most == 1 ? "rank" : "to " + std::to_string(o.most) + " ranks") +
                    " is as fast");
  if (o.json) return void(std::printf("%s\n", to_json(prediction).c_str()));
  std::printf("%d rank%s\n", prediction.ranks, prediction.ranks == 1 ? "" : "s");
  print(prediction);
}

// Numbers, or a file that holds them.
std::vector<double> load_of(const std::string& text) {
  if (!text.empty() && text.find_first_not_of("0123456789.,+-eEnaif") != std::string::npos)
    return read_expert_load(text);
  std::vector<double> numbers;
  for (size_t from = 0; from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    double value = 0;
    const auto [rest, error] = std::from_chars(text.data() + from, text.data() + comma, value);
    if (error != std::errc() || rest != text.data() + comma)
      throw Error(ErrorCode::usage,
                  "--expert-load " + text + ": expected numbers, as 3,1,1,1, or a file");
    numbers.push_back(value);
    from = comma + 1;
  }
  return numbers;
}

void write_files(const Options& o, const RunOptions& run, const std::stop_token& stop) {
  check_files({o.model,
               {{"--routing", o.request.routing}},
               {{"--timeline", o.timeline, FileKind::plan_costs},
                {"--recording", o.recording, FileKind::plan_costs}},
               o.overwrite});
  if (!o.timeline.empty()) {
    const auto form = o.timeline.ends_with(".svg") ? TimelineForm::image : TimelineForm::trace;
    save_text(timeline(o.model, run, o.request, form, stop), o.timeline);
  }
  if (!o.recording.empty()) save_text(recording(o.model, run, o.request, stop), o.recording);
}

void plan(Options& o, const std::stop_token& stop) {
  if (!o.score.empty())
    return score_predictions(
        o.score, o.threads,
        [](const std::string& line) {
          std::printf("%s\n", line.c_str());
          flush_results();
        },
        stop);
  if (o.calibrate)
    return void(std::printf("%s\n", calibrate(o.request.ranks, o.threads, stop).c_str()));
  if (o.model.empty())
    throw Error(ErrorCode::usage, "MODEL is missing: a folder, or a published one, as flux_1_dev");
  o.request.goal = o.optimise == "latency"  ? PlanGoal::latency
                   : o.optimise == "memory" ? PlanGoal::memory
                                            : PlanGoal::throughput;
  o.request.stale = o.quality == "stale";
  if (!o.load.empty()) o.request.expert_load = load_of(o.load);
  if (!o.plan.empty()) {
    const Plan parsed_plan = parse_plan(o.plan);
    o.request.plans = {parsed_plan};
    const bool ranks_given = o.request.ranks > 1;
    const std::vector<std::string> reasons =
        problems(parsed_plan, ranks_given ? o.request.ranks : parsed_plan.ranks());
    if (!reasons.empty()) throw Error(ErrorCode::plan, reasons.front());
    o.request.ranks = parsed_plan.ranks();
  }
  if (!o.sweep.empty()) return sweep(o, stop);
  if (o.deadline > 0) return deadline(o, stop);
  const Prediction prediction = predict_plans(o.model, run_of(o), o.request, {}, stop);
  if (o.json)
    std::printf("%s\n", to_json(prediction).c_str());
  else if (!prediction.plans.empty() ||
           prediction.refused.size() > 1)  // the error says why a plan fails
    print(prediction);
  flush_results();
  if (!prediction.plans.empty() && o.request.plans.empty())
    o.request.plans = {parse_plan(prediction.plans.front().plan)};
  if (prediction.plans.empty())
    throw Error(ErrorCode::plan,
                "no plan runs on " + std::to_string(o.request.ranks) +
                    (o.request.ranks == 1 ? " rank: " : " ranks: ") +
                    (prediction.refused.empty() ? "" : prediction.refused.front().reason));
  write_files(o, run_of(o), stop);
}

void add_request(CLI::App& app, Options& o) {
  const char* group = "Run";
  GenerateRequest& g = o.request.generate;
  app.add_option("--width", g.width, "Width in pixels (default: as trained)")
      ->check(positive())
      ->group(group)
      ->type_name("W");
  app.add_option("--height", g.height, "Height in pixels (default: as trained)")
      ->check(positive())
      ->group(group)
      ->type_name("H");
  app.add_option("--frames", g.frames, "Frames of a video (default: as trained)")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  app.add_option("--steps", g.steps, "Steps, or passes of a block (default: the model's)")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  app.add_option("--count", g.count, "Images or prompts of the run (default 1)")
      ->check(whole(1, 100000))
      ->group(group)
      ->type_name("N");
  app.add_option("--guidance", g.guidance, "Guidance scale (default: the model's)")
      ->group(group)
      ->type_name("G");
  app.add_option("--text-tokens", g.text_tokens, "Of a prompt for T5 (default: the model's)")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  app.add_option("--prompt-tokens", o.request.prompt_tokens, "Of a language model's prompt")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  app.add_option("--max-tokens", o.request.answer_tokens, "Of a language model's answer")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  app.add_option("--expert-load", o.load, "Tokens of each expert (default: alike)")
      ->group(group)
      ->type_name("N,N,...|FILE");
  app.add_option("--routing", o.request.routing, "Experts of each token: a trace of generate")
      ->group(group)
      ->type_name("FILE");
  add_choice(app, "--dtype", o.dtype, "f32, bf16 or int8 (default bf16)")
      ->check(one_of({"f32", "bf16", "int8"}))
      ->group(group)
      ->type_name("T");
}

void add_plans(CLI::App& app, Options& o) {
  const char* group = "Plans";
  app.add_option("--optimise", o.optimise, "latency (default), throughput or memory")
      ->check(one_of({"latency", "throughput", "memory"}))
      ->group(group)
      ->type_name("GOAL");
  app.add_option("--quality", o.quality, "exact (default); stale: also stale plans")
      ->check(one_of({"exact", "stale"}))
      ->group(group)
      ->type_name("Q");
  app.add_option("--plan", o.plan, "This plan alone (default: all)")->group(group)->type_name("P");
  app.add_option("--sweep", o.sweep, "Best plans of rank counts: ranks=1..64")
      ->group(group)
      ->type_name("R");
  app.add_option("--deadline", o.deadline, "Find the fewest ranks within these seconds")
      ->check(within(1e-9, 1e9))
      ->group(group)
      ->type_name("S");
  app.add_option("--most", o.most, "Most ranks that --deadline tries (default 64)")
      ->check(whole(1, 512))
      ->group(group)
      ->type_name("N");
}

void add_output(CLI::App& app, Options& o) {
  const char* out = "Output";
  app.add_flag("--json", o.json, "Write one JSON object, with all plans")->group(out);
  app.add_option("--timeline", o.timeline, "Write the best plan's Chrome trace, or .svg")
      ->group(out)
      ->type_name("F");
  app.add_option("--recording", o.recording, "Write the best plan's ops and messages, JSON")
      ->group(out)
      ->type_name("F");
  app.add_flag("--overwrite", o.overwrite, "Replace a file that Tessera did not write")->group(out);
  app.add_option("--threads", o.threads, "Threads (default: all cores)")
      ->check(whole(1, 4096))
      ->group(out)
      ->type_name("N");
  app.add_option("--score", o.score, "Compare with the published numbers of a file")
      ->group(out)
      ->type_name("FILE");
  app.add_flag("--calibrate", o.calibrate, "Measure this machine, for --hardware FILE")->group(out);
}

}  // namespace

std::string choose_auto_plan(ModelOptions& o, const GenerateRequest& request,
                             const Processes* processes, const std::stop_token& stop) {
  if (processes)
    throw Error(
        ErrorCode::usage,
        "--plan auto: ranks that mpirun started would each choose; run 'tessera plan' once, "
        "and give them its plan");
  PredictionRequest prediction_request;
  prediction_request.generate = request;
  prediction_request.hardware = "here";
  prediction_request.ranks = std::max(o.ranks, 1);
  RunOptions run;
  run.precision = o.dtype;
  run.threads = o.threads;
  const PredictedPlan best = choose_plan(o.model, run, prediction_request, stop);
  o.plan = best.plan;
  return "plan " + (best.plan.empty() ? "of one rank" : best.plan) + ", predicted to take " +
         seconds(best.seconds()) + " s after loading";
}

Command add_plan(CLI::App& program) {
  CLI::App* app = program.add_subcommand("plan", "Predict what every plan over ranks takes");
  auto o = std::make_shared<Options>();
  app->add_option("MODEL", o->model, "Folder, hub id, shipped or published model");
  const char* group = "Hardware";
  app->add_option("--hardware", o->request.hardware, "L40, A100, H100, ..., here, or a file")
      ->group(group)
      ->type_name("FILE|NAME");
  app->add_option("--ranks", o->request.ranks, "Ranks of a plan (default 1)")
      ->check(whole(1, 512))
      ->group(group)
      ->type_name("N");
  app->add_option("--what-if", o->request.changes, "Changes: link=25Gbit,memory=40GB")
      ->group(group)
      ->type_name("K=V");
  add_request(*app, *o);
  add_plans(*app, *o);
  add_output(*app, *o);
  return {app, [o](const std::stop_token& stop) {
            refuse_processes("plan");
            plan(*o, stop);
          }};
}

}  // namespace tessera::cli
