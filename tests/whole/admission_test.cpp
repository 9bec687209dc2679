#include <cmath>
#include <iostream>
#include <locale>
#include <stop_token>

#include "admission/memory_plan.h"
#include "admission/token_memory.h"
#include "base/stop.h"
#include "diffusion/plan_job.h"
#include "pipeline/complete.h"
#include "runtime/open_model.h"
#include "test_paths.h"
#include "whole/pixart_text.h"
#include "whole/small_video.h"
#include "whole/text_model.h"

namespace tessera::pipeline {
namespace {

const std::string kDitMoe = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";
const std::string kPixArt = TESSERA_TEST_DATA "/diffusers/pixart_alpha/model";

/// A run, and the checks of its admission.
struct Row {
  std::string name, model, plan;
  GenerateRequest request;
  Precision precision = Precision::bf16;
  double budget = 1;  ///< factor of the run's need; below 1: weights are streamed, images tiled
};

GenerateRequest classes(int count, int steps, int64_t side = 0, bool decode = false) {
  GenerateRequest request;
  request.classes = {"1"};
  request.count = count;
  request.steps = steps;
  request.width = request.height = side;
  request.decode = decode;
  return request;
}

GenerateRequest pixart(const golden::Scratch& scratch, int64_t side) {
  GenerateRequest request;
  request.embeddings = golden::pixart_text(scratch);
  request.steps = 2;
  request.width = request.height = side;
  return request;
}

GenerateRequest prompted_video() {
  GenerateRequest request;
  request.prompts = {"waves"};
  request.width = request.height = 32;
  request.frames = 9;
  request.steps = 2;
  return request;
}

GenerateRequest binned(GenerateRequest request) {
  request.binning = true;
  request.width = 72;
  return request;
}

GenerateRequest traced(GenerateRequest request, const golden::Scratch& scratch) {
  request.trace = scratch / "trace.safetensors";
  return request;
}

GenerateRequest previewed(GenerateRequest request) {
  request.previews = true;
  return request;
}

GenerateRequest chunked(GenerateRequest request, int64_t lines) {
  request.vae_chunk = lines;
  return request;
}

std::vector<Row> rows(const golden::Scratch& scratch, const golden::Scratch& videos) {
  return {
      {"one rank", kDitMoe, "", classes(2, 7), Precision::f32},
      {"streamed", kDitMoe, "", classes(2, 5), Precision::f32, 0.8},
      {"distrifusion", kDitMoe, "distrifusion=2,warmup=2", classes(1, 9, 96)},
      {"shards", kDitMoe, "distrifusion=2,shards=4,warmup=2", classes(1, 9, 96)},
      {"spread", kDitMoe, "shard=2", classes(2, 5)},
      {"tensor", kDitMoe, "tensor=2", classes(2, 5)},
      {"cfg", kDitMoe, "cfg=2", classes(2, 5)},
      {"ulysses", kDitMoe, "ulysses=2", classes(2, 5, 96)},
      {"ring", kDitMoe, "ring=2", classes(1, 5, 96)},
      {"ring of patches", kDitMoe, "ring=2,patches=3", classes(1, 9, 96)},
      {"displaced", kDitMoe, "schedule=displaced", classes(2, 9)},
      {"image", "shapes", "", classes(3, 2, 0, true)},
      {"large image", "shapes", "", classes(1, 1, 384, true)},
      {"image on three ranks", "shapes", "ulysses=3,vae=3", classes(3, 2, 0, true)},
      {"image on some ranks", "shapes", "cfg=2,ulysses=2,vae=2",
       traced(classes(2, 2, 384, true), scratch), Precision::f32},
      {"images decoded apart", "shapes", "vae=+1", classes(4, 2, 0, true)},
      {"images decoded apart by two", "shapes", "cfg=2,ulysses=2,vae=+2",
       traced(classes(3, 2, 256, true), scratch), Precision::f32},
      {"video decoded apart", golden::kVideoModel, "ulysses=2,vae=+2", golden::small_video(videos)},
      {"image in tiles", "shapes", "", classes(1, 1, 512, true), Precision::bf16, 0.5},
      {"image by chunks", "shapes", "", chunked(classes(1, 1, 384, true), 24)},
      {"image by chunks of two", "shapes", "ulysses=2,vae=2", chunked(classes(1, 1, 384, true), 7)},
      {"images by chunks apart", "shapes", "vae=+1", chunked(classes(2, 1, 384, true), 7)},
      {"video by chunks", golden::kVideoModel, "", chunked(golden::small_video(videos), 3)},
      {"text to image", kPixArt, "", pixart(scratch, 128), Precision::f32},
      {"text to image, streamed", kPixArt, "", pixart(scratch, 32), Precision::f32, 0.9},
      {"text to image, cropped", kPixArt, "", binned(pixart(scratch, 64))},
      {"text to image, cfg", kPixArt, "cfg=2", pixart(scratch, 64)},
      {"traced", kDitMoe, "", traced(classes(2, 40, 96), scratch), Precision::f32},
      {"traced, streamed", kDitMoe, "", traced(classes(2, 9), scratch), Precision::f32, 0.8},
      {"traced, cfg", kDitMoe, "cfg=2", traced(classes(2, 30, 96), scratch)},
      {"traced images", "shapes", "", traced(classes(30, 2, 0, true), scratch)},
      {"previews", "shapes", "", previewed(classes(2, 3, 0, true))},
      {"previews, streamed", "shapes", "", previewed(classes(2, 3, 0, true)), Precision::bf16,
       0.75},
      {"video, traced", golden::kVideoModel, "", traced(golden::small_video(videos), scratch)},
      {"video", golden::kVideoModel, "", golden::small_video(videos)},
      {"video on three ranks", golden::kVideoModel, "ulysses=3,vae=3", golden::small_video(videos)},
      {"video of a prompt", golden::kVideoModel, "", prompted_video()},
      {"video of a prompt, spread", golden::kVideoModel, "shard=2", prompted_video()},
  };
}

// `shown`: reserves memory for previews.
Report run(const Row& row, int64_t budget, bool shown = false) {
  RunOptions options = golden::options(row.precision);
  options.plan = parse_plan(row.plan);
  options.memory_budget = budget;
  RunControl control;
  if (row.request.previews)
    control.on_progress = [&](const Progress& p) {
      if (!p.preview) return;
      try {
        p.preview();
      } catch (const Error& e) {
        EXPECT_FALSE(shown) << row.name << ": " << e.what();
      }
    };
  return Model::open(row.model, options).generate(row.request, control).report;
}

admission::MemoryFit expected(const Row& row, int64_t budget) {
  runtime::ModelState state;
  RunOptions options = golden::options(row.precision);
  options.plan = parse_plan(row.plan);
  options.memory_budget = budget;
  runtime::open_model(row.model, options, state);
  diffusion::Job job = diffusion::plan_job(state, row.request);
  return admission::fit_memory(state, row.request, job);
}

constexpr int64_t kPlenty = int64_t{1} << 40;

struct Thousands : std::numpunct<char> {
  std::string do_grouping() const override { return "\3"; }
  char do_thousands_sep() const override { return ','; }
};
const std::locale kThousands(std::locale::classic(), new Thousands);

// A row of docs/results/memory.md: predicted and measured bytes of a process and of its fullest
// rank.
void print_row(const Row& row, const admission::MemoryFit& fit, const Report& report) {
  int64_t expected = 0, taken = 0;
  for (const auto& rank : fit.denoise.ranks) expected = std::max(expected, rank.total);
  for (const auto& rank : report.per_rank) taken = std::max(taken, rank.peak_bytes.total);
  std::cout << fmt::format(kThousands, "| {} | {:L} | {:L} | {:L} | {:L} |\n", row.name,
                           fit.process, report.peak_bytes.total, expected, taken);
}

TEST(Admission, IsWhatRunsTakeAndNoneTakesMore) {
  const golden::Scratch scratch, videos;
  for (const Row& row : rows(scratch, videos)) {
    const int64_t whole = expected(row, kPlenty).process;
    const auto budget = static_cast<int64_t>(std::ceil(double(whole) * row.budget));
    const admission::MemoryFit fit = expected(row, budget);
    ASSERT_EQ(fit.problem, "") << row.name;
    EXPECT_LE(fit.process, budget) << row.name;
    const Report report = run(row, budget, true);
    EXPECT_LE(report.peak_bytes.total, budget) << row.name;
    EXPECT_LE(report.peak_bytes.total, fit.process) << row.name;
    ASSERT_EQ(report.per_rank.size(), fit.denoise.ranks.size()) << row.name;
    print_row(row, fit, report);
    for (size_t r = 0; r < report.per_rank.size(); ++r) {
      const auto did = double(report.per_rank[r].peak_bytes.total);
      EXPECT_NEAR(double(fit.denoise.ranks[r].total), did, 0.05 * did) << row.name << ' ' << r;
      EXPECT_EQ(fit.denoise.ranks[r].decode, report.per_rank[r].decode_peak_bytes.total)
          << row.name << ' ' << r;
      const auto text = double(report.per_rank[r].text_peak_bytes.total);
      EXPECT_NEAR(double(fit.denoise.ranks[r].text), text, 0.05 * text) << row.name << ' ' << r;
    }
    if (report.per_rank.size() == 1) {
      EXPECT_GE(report.peak_bytes.total, fit.process * 95 / 100) << row.name;
    }
  }
}

// The budget in the text of a refusal.
int64_t named_budget(const std::string& problem) {
  const std::string before = "it fits into `memory_budget` ";
  const size_t at = problem.find(before);
  EXPECT_NE(at, std::string::npos) << problem;
  if (at == std::string::npos) return 0;
  return std::llround(std::stod(problem.substr(at + before.size())) * 1e6);
}

TEST(Admission, TheBudgetThatARefusalNamesIsEnough) {
  const golden::Scratch scratch, videos;
  for (const Row& row : rows(scratch, videos)) {
    const std::string problem = expected(row, 1000).problem;
    ASSERT_NE(problem, "") << row.name;
    const int64_t named = named_budget(problem);
    EXPECT_LE(run(row, named).peak_bytes.total, named) << row.name;
    if (named > 200'000) {
      EXPECT_NE(expected(row, named - 150'000).problem, "") << row.name;
    }
  }
}

TEST(Admission, RanksAreNoRemedyWhereTheyAreNotAllThatIsTooLarge) {
  const golden::Scratch scratch;
  GenerateRequest images = classes(3, 2, 0, true);
  const Row shapes{"shapes", "shapes", "cfg=2", images};  // at 1,000 bytes the decoder, too
  const std::string both = expected(shapes, 1000).problem;
  EXPECT_EQ(both.find("ranks of a plan"), std::string::npos) << both;
  EXPECT_EQ(both.find("mpirun"), std::string::npos) << both;
  EXPECT_GT(named_budget(both), 0);
  images.decode = false;
  const Row alone{"latents", "shapes", "cfg=2", images};
  EXPECT_NE(expected(alone, 1000).problem.find("ranks of a plan do not stream"), std::string::npos);
}

TEST(Admission, HeedsAStopRequest) {
  std::stop_source stopped;
  stopped.request_stop();
  for (const char* plan : {"", "cfg=2"}) {
    runtime::ModelState state;
    RunOptions options = golden::options(Precision::bf16);
    options.plan = parse_plan(plan);
    runtime::open_model(kDitMoe, options, state);
    diffusion::Job job = diffusion::plan_job(state, classes(2, 5));
    const base::BindStop bind(stopped.get_token());
    try {
      admission::fit_memory(state, {}, job);
      ADD_FAILURE() << "went on to its end: " << plan;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::cancelled) << plan << ": " << e.what();
    }
  }
}

TEST(Admission, TilesAndBandsAreNotMixedAndWhatBandsNeedIsSaid) {
  Row row{"bands", "shapes", "ulysses=2,vae=2", classes(1, 1, 512, true)};
  const admission::MemoryFit fit = expected(row, kPlenty);
  ASSERT_GT(fit.decode.peak, fit.denoise.process) << "the case is no case";
  const std::string problem = expected(row, fit.process - 1).problem;
  EXPECT_NE(problem.find("this run's decoding by vae=2"), std::string::npos) << problem;
  EXPECT_EQ(expected(row, fit.process).problem, "");
  row.plan = "vae=+1";
  const int64_t apart = expected(row, kPlenty).process;
  const admission::MemoryFit tiled = expected(row, apart * 8 / 10);
  EXPECT_EQ(tiled.problem, "") << "one that decodes apart may take tiles";
  EXPECT_LE(run(row, apart * 8 / 10).peak_bytes.total, apart * 8 / 10);
  row.request.vae_tiling = VaeTiling::on;
  row.plan = "ulysses=2,vae=+2";
  try {
    expected(row, kPlenty);
    ADD_FAILURE() << "went on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plan);
    EXPECT_NE(std::string(e.what()).find("leave out one of the two"), std::string::npos);
  }
}

TEST(Admission, AChunkOfLinesFitsWhereAllOfThemDoNot) {
  for (const char* plan : {"", "ulysses=2,vae=2", "vae=+1"}) {
    Row row{"chunk", "shapes", plan, classes(1, 1, 512, true)};
    row.request.vae_tiling = VaeTiling::off;
    const int64_t whole = expected(row, kPlenty).process;
    row.request.vae_chunk = 16;
    const int64_t cut = expected(row, kPlenty).process;
    EXPECT_LT(double(cut), 0.9 * double(whole)) << plan;
    EXPECT_EQ(expected(row, cut).problem, "") << plan;
    row.request.vae_chunk = 0;
    EXPECT_NE(expected(row, cut).problem, "") << plan;
  }
}

// With uneven routing a rank may take more memory: then the run reports a note.
TEST(Admission, RoutingThatIsUnevenIsNotWithoutAWord) {
  const Row row{"experts", kDitMoe, "expert=2", classes(4, 5)};
  const admission::MemoryFit fit = expected(row, kPlenty);
  const Report even = run(row, kPlenty);
  EXPECT_TRUE(std::count_if(even.notes.begin(), even.notes.end(), [](const std::string& note) {
    return note.find("as if all experts got as many tokens") != std::string::npos;
  })) << "what is assumed is said";
  for (size_t r = 0; r < 2; ++r)
    EXPECT_NEAR(double(fit.denoise.ranks[r].total), double(even.per_rank[r].peak_bytes.total),
                0.25 * double(fit.denoise.ranks[r].total));
  RunOptions options;
  options.plan = parse_plan("expert=2");
  options.memory_budget = 1000;
  const std::string said = admission::beyond_budget(options, {.total = 1'300'000}, {});
  EXPECT_EQ(said,
            "took 1.3 MB, where `memory_budget` allows 1.0 KB: some experts got more tokens than "
            "others");
  EXPECT_EQ(admission::beyond_budget(options, {.total = 1000}, {}), "");
  const Processes* const processes = nullptr;
  options.processes = processes;
  EXPECT_EQ(admission::beyond_budget(options, {}, {{.peak_bytes = {.total = 2000}}}), "")
      << "ranks that are threads count together";
}

TEST(Admission, ARuleThatTakesMoreExpertsIsPredicted) {
  const golden::TextModel folder("llada2");
  RunOptions options = golden::options(Precision::bf16);
  options.memory_budget = kPlenty;
  runtime::ModelState state;
  runtime::open_model(folder.path(), options, state);
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3, 4, 5, 6, 7, 8}};
  q.max_tokens = 16;
  q.block = 8;
  q.select = "topk:16";
  completion::TokenRun run{{24}, q.block, q.block, {8}, true};
  const int64_t usual = admission::dry_run_tokens(state, options, run).ranks.front().total;
  run.rule = nn::parse_selection(q.select);
  const int64_t more = admission::dry_run_tokens(state, options, run).ranks.front().total;
  const auto took = pipeline::complete(state, q, {}).per_rank.front().peak_bytes.total;
  EXPECT_GT(took, usual);
  EXPECT_LE(took, more);
  EXPECT_NEAR(double(more), double(took), 0.05 * double(took));
}

TEST(Admission, CompletionsTakeWhatIsPredicted) {
  for (const char* name : {"llada_moe", "llada2"})
    for (const std::string plan : {"", "tensor=2", "expert=2"})
      for (const KvCache cache : {KvCache::automatic, KvCache::none})
        for (const size_t prompts : {1, 3}) {
          if (cache == KvCache::none && std::string(name) == "llada2") continue;
          const golden::TextModel folder(name);
          RunOptions options = golden::options(Precision::bf16);
          options.plan = parse_plan(plan);
          options.memory_budget = kPlenty;
          runtime::ModelState state;
          runtime::open_model(folder.path(), options, state);
          CompleteRequest q;
          q.prompt_ids.assign(prompts, {1, 2, 3, 4, 5, 6, 7, 8});
          q.max_tokens = 16;
          q.block = 8;
          q.cache.kind = cache;
          completion::TokenRun run{std::vector<int64_t>(prompts, 24), q.block, q.block};
          run.joined = true;
          if (std::string(name) == "llada2") run.prefill.assign(prompts, 8);
          const admission::DryRun predicted = admission::dry_run_tokens(state, options, run);
          const CompleteResult did = pipeline::complete(state, q, {});
          ASSERT_EQ(did.per_rank.size(), predicted.ranks.size());
          const char* const how = cache == KvCache::none ? ", no cache" : "";
          std::cout << fmt::format(kThousands, "| {}, {} prompts{}{}{} | {:L} | {:L} |\n", name,
                                   prompts, how, plan.empty() ? "" : ", ", plan,
                                   predicted.ranks.front().total,
                                   did.per_rank.front().peak_bytes.total);
          const double routed = plan == "expert=2" ? 1.05 : 1;  // some experts get more tokens
          EXPECT_LE(double(did.peak_bytes.total), routed * double(predicted.process))
              << name << plan;
          for (size_t r = 0; r < did.per_rank.size(); ++r) {
            const auto took = double(did.per_rank[r].peak_bytes.total);
            EXPECT_GT(did.per_rank[r].flops, 0);
            if (plan == "expert=2") continue;  // the routing decides
            EXPECT_LE(took, double(predicted.ranks[r].total)) << name << plan;
            EXPECT_NEAR(double(predicted.ranks[r].total), took, 0.05 * took) << name << plan;
          }
        }
}

}  // namespace
}  // namespace tessera::pipeline
