#include "admission/dry_run.h"

#include <tuple>

#include "base/fail.h"
#include "diffusion/plan_job.h"
#include "nn/local.h"
#include "runtime/launch.h"
#include "runtime/open_model.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The DiT-MoE of the tests with routers that send every token to the experts 0 and 1 of four, so
/// the work of a run is known in advance.
class SettledModel {
 public:
  SettledModel() {
    const std::string folder = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";
    fs::copy_file(folder + "/config.json", scratch_ / "config.json");
    const load::SafetensorsFile file(folder + "/model.safetensors");
    std::map<std::string, tensor::Tensor> tensors;
    for (const auto& [name, entry] : file.entries()) {
      tensors[name] = file.get(name);
      if (name.ends_with(".gate.weight"))
        tensors[name] = tensor::Tensor::zeros(tensors[name].shape(), tensors[name].dtype());
    }
    load::write_safetensors(scratch_ / "model.safetensors", tensors);
    scope_.assumptions.expert_load = {1, 1, 0, 0};
  }
  std::string folder() const { return scratch_ / ""; }
  const tensor::Scope& scope() const { return scope_; }

 private:
  golden::Scratch scratch_;
  tensor::Scope scope_;
};

struct Asked {
  const char* plan;
  int count = 1;
  int steps = 7;
  int64_t side = 0;
  Precision precision = Precision::bf16;
};

GenerateRequest request_of(const Asked& asked) {
  GenerateRequest request;
  request.classes = {"1"};
  request.count = asked.count;
  request.steps = asked.steps;
  request.width = request.height = asked.side;
  request.decode = false;
  return request;
}

Model opened(const std::string& folder, const Asked& asked, int64_t budget = 0) {
  RunOptions options = golden::options(asked.precision);
  options.plan = parse_plan(asked.plan);
  options.memory_budget = budget;
  return Model::open(folder, options);
}

// Compares within a share of a rank's bytes of a class.
void expect_predicted(const std::vector<Inspection::Rank>& predicted, const Report& report,
                      double within, const std::string& what) {
  ASSERT_EQ(report.per_rank.size(), predicted.size()) << what;
  for (size_t r = 0; r < predicted.size(); ++r) {
    const auto& did = report.per_rank[r].peak_bytes;
    using Pair = std::tuple<const char*, int64_t, int64_t>;
    for (const auto& [name, bytes, held] :
         {Pair{"weights", predicted[r].weights, did.weights},
          Pair{"activations", predicted[r].activations, did.activations},
          Pair{"kv", predicted[r].kv, did.kv}, Pair{"buffers", predicted[r].buffers, did.buffers},
          Pair{"total", predicted[r].total, did.total}})
      EXPECT_NEAR(double(bytes), double(held), within * double(held))
          << what << ", rank " << r << ", " << name;
  }
}

TEST(DryRun, IsWhatEveryRankReports) {
  const SettledModel model;
  const tensor::BindScope bind(model.scope());
  for (const Asked& asked :
       std::vector<Asked>{{"expert=2", 5},
                          {"expert=2", 2, 3, 96, Precision::f32},
                          {"expert=4", 4, 2},
                          {"expert=2,schedule=interweaved", 5},
                          {"expert=4,schedule=interweaved,sync=deep", 3, 20},
                          {"expert=3,schedule=displaced,sync-every=3", 5, 11},
                          {"expert=2,schedule=interweaved,warmup=2,cooldown=3", 4, 12},
                          {"expert=2,schedule=adaptive,budget=30", 4},
                          {"expert=2,schedule=staggered-batch", 5},
                          {"expert=3,placement=1+0+2+0", 4},
                          {"expert=2,moe=fused", 5},
                          {"expert=4,moe=fused", 3, 20, 96, Precision::f32},
                          {"cfg=2,ulysses=2,expert=4,moe=fused", 2, 9},
                          {"data=2,pipefusion=2,patches=3,expert=2,moe=fused", 2, 9},
                          {"expert=2,moe=fused,schedule=interweaved", 5},
                          {"expert=4,moe=fused,schedule=interweaved,sync=deep", 3, 20},
                          {"expert=3,moe=fused,schedule=displaced,sync-every=3", 5, 11},
                          {"data=2,shard=2,expert=2,moe=fused,schedule=interweaved", 5},
                          {"data=3", 4},
                          {"distrifusion=2"},
                          {"distrifusion=2", 2, 12, 128, Precision::f32},
                          {"distrifusion=4,warmup=3", 1, 9},
                          {"shards=3", 2, 9},
                          {"cfg=2,distrifusion=2,shards=6,warmup=2", 2, 9},
                          {"data=2,distrifusion=2,expert=4,schedule=interweaved", 3},
                          {"schedule=displaced", 2, 9},
                          {"tensor=2", 2},
                          {"shard=2", 2},
                          {"shard=3", 1, 4, 96, Precision::f32},
                          {"cfg=2,ulysses=2,shard=2", 1, 3, 96},
                          {"data=2,shard=2,pipefusion=2,patches=2", 3},
                          {"data=2,shard=2,expert=2,schedule=interweaved", 5},
                          {"cfg=2", 3},
                          {"ulysses=2", 2, 3, 96},
                          {"cfg=2,ulysses=2,expert=4,schedule=interweaved", 2, 20},
                          {"ring=3", 1, 4, 96, Precision::f32},
                          {"ring=2,ulysses=2,expert=2"},
                          {"patches=3", 2, 9},
                          {"patches=5,warmup=2", 1, 9, 96, Precision::f32},
                          {"pipefusion=2,patches=3", 2, 9},
                          {"pipefusion=3,patches=4,cut=bands", 1, 6, 96, Precision::f32},
                          {"cfg=2,pipefusion=2,ulysses=2,patches=4,warmup=2", 2, 9},
                          {"data=2,pipefusion=2,patches=2,expert=2,schedule=interweaved", 2, 12},
                          {"ring=3,patches=3", 2, 9},
                          {"pipefusion=2,ring=2,ulysses=2,patches=5,warmup=2", 1, 9, 96},
                          {"data=2,tensor=2", 3, 3, 96}}) {
    const std::string what = std::string(asked.plan) + " x " + std::to_string(asked.count);
    Model open = opened(model.folder(), asked);
    const Inspection found = open.inspect(request_of(asked));
    // The rows of an adaptive step depend on the movement of tokens.
    const double within = what.find("adaptive") == std::string::npos ? 0 : 0.05;
    expect_predicted(found.ranks, open.generate(request_of(asked)).report, within, what);
  }
}

// The tokens with changed experts are unknown, so the prediction assumes all.
TEST(DryRun, ConditionalSlotsArePredictedAsIfAllWereSent) {
  const SettledModel model;
  const tensor::BindScope bind(model.scope());
  for (const std::string plan : {"expert=2", "expert=2,schedule=interweaved"}) {
    const std::string left_out = plan + ",conditional=low,stride=4";
    const Asked asked{left_out.c_str(), 4, 9}, whole{plan.c_str(), 4, 9};
    Model open = opened(model.folder(), asked);
    const auto predicted = open.inspect(request_of(asked)).ranks;
    const Report report = open.generate(request_of(asked)).report;
    const auto all = opened(model.folder(), whole).inspect(request_of(whole)).ranks;
    ASSERT_EQ(report.per_rank.size(), predicted.size());
    for (size_t r = 0; r < predicted.size(); ++r) {
      const Report::Rank& did = report.per_rank[r];
      EXPECT_LE(did.peak_bytes.activations, predicted[r].activations) << left_out;
      EXPECT_LE(did.peak_bytes.buffers, predicted[r].buffers) << left_out;
      EXPECT_LE(did.peak_bytes.total, predicted[r].total) << left_out;
      EXPECT_GE(predicted[r].sent, all[r].sent) << left_out;
    }
  }
}

// The routers of the model do the same: all tokens go to the experts of rank 0.
TEST(DryRun, SaysWhatTheMostUnevenRoutingTakes) {
  const SettledModel model;
  for (const char* plan : {"expert=2", "expert=2,schedule=interweaved"}) {
    const Asked asked{plan, 5, 9};
    Model open = opened(model.folder(), asked);
    const Inspection found = open.inspect(request_of(asked));
    const int64_t uneven = found.memory.at("uneven");
    const int64_t took = open.generate(request_of(asked)).report.peak_bytes.total;
    EXPECT_LE(took, uneven) << plan;
    EXPECT_NEAR(double(uneven), double(took), 0.15 * double(took)) << plan;
    EXPECT_TRUE(std::any_of(found.notes.begin(), found.notes.end(), [](const std::string& note) {
      return note.find("at most, if all tokens choose the experts of one rank") !=
             std::string::npos;
    })) << plan;
  }
  const tensor::BindScope bind(model.scope());
  const Asked known{"expert=2"};
  EXPECT_FALSE(opened(model.folder(), known).inspect(request_of(known)).memory.contains("uneven"))
      << "nothing is assumed of who gets how many";
}

TEST(DryRun, CountsWhatTheRequestHoldsBesideItsRanks) {
  const SettledModel model;
  runtime::ModelState state;
  runtime::open_model(model.folder(), golden::options(Precision::bf16), state);
  diffusion::Job job = diffusion::sketch_job(state, request_of({"", 2, 3}));
  const admission::DryRun without = admission::dry_run(state, job);
  int64_t conditioning = 0;
  for (const auto& [name, x] : job.asked.conditioning.tensors) conditioning += x.bytes();
  EXPECT_GT(conditioning, 0);
  EXPECT_EQ(without.process, without.ranks[0].total + conditioning);
  job.asked.given["latents"] = tensor::Tensor::zeros(job.latent_shape(), tensor::DType::f32);
  const admission::DryRun with = admission::dry_run(state, job);
  EXPECT_EQ(with.process, with.ranks[0].total + conditioning + job.asked.given["latents"].bytes());
}

TEST(DryRun, MessagesOfAStepAreThoseOfRanksThatDenoise) {
  const auto messages = [](const char* plan) {
    RunOptions options = golden::options(Precision::bf16);
    options.plan = parse_plan(plan);
    runtime::ModelState state;
    runtime::open_model("shapes", options, state);
    GenerateRequest request;
    request.classes = {"1"};
    request.steps = 3;
    return admission::dry_run(state, diffusion::sketch_job(state, request)).messages;
  };
  EXPECT_EQ(messages("vae=+2"), 0);
  EXPECT_GT(messages("cfg=2,ulysses=2"), 0);
  EXPECT_EQ(messages("cfg=2,ulysses=2,vae=+2"), messages("cfg=2,ulysses=2"));
}

// Runs are refused with less memory than predicted, and succeed with exactly the prediction.
TEST(DryRun, WhatFitsRunsAndWhatDoesNotIsRefused) {
  const SettledModel model;
  const tensor::BindScope bind(model.scope());
  for (const Asked& asked : std::vector<Asked>{{"expert=4", 4},
                                               {"distrifusion=4"},
                                               {"distrifusion=2,warmup=2", 2, 5, 96},
                                               {"shard=3", 2},
                                               {"pipefusion=3,patches=4", 2, 6}}) {
    runtime::ModelState state;
    RunOptions options = golden::options(asked.precision);
    options.plan = parse_plan(asked.plan);
    runtime::open_model(model.folder(), options, state);
    const int64_t need =
        admission::dry_run(state, diffusion::sketch_job(state, request_of(asked))).process;
    const Report report =
        opened(model.folder(), asked, need + 1000).generate(request_of(asked)).report;
    EXPECT_LE(report.peak_bytes.total, need + need / 50) << asked.plan;
    EXPECT_GT(report.peak_bytes.total, need / 2) << asked.plan;
    try {
      opened(model.folder(), asked, need * 9 / 10).generate(request_of(asked));
      ADD_FAILURE() << asked.plan << " ran in less than it needs";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::memory);
      EXPECT_NE(std::string(e.what()).find("it fits into `memory_budget`"), std::string::npos)
          << e.what();
    }
  }
}

TEST(DryRun, AStreamedTransformerIsPredicted) {
  const SettledModel model;
  const tensor::BindScope bind(model.scope());
  const Asked asked{"", 2, 3, 0, Precision::f32};
  const int64_t whole =
      opened(model.folder(), asked).generate(request_of(asked)).report.per_rank[0].peak_bytes.total;
  for (const int64_t budget : {whole * 9 / 10, whole * 7 / 10}) {
    Model open = opened(model.folder(), asked, budget);
    const Inspection found = open.inspect(request_of(asked));
    ASSERT_FALSE(found.notes.empty());
    EXPECT_NE(found.notes[0].find("streams the transformer"), std::string::npos) << found.notes[0];
    EXPECT_EQ(found.unfit, "");
    const Report report = open.generate(request_of(asked)).report;
    EXPECT_EQ(report.notes, found.notes);
    expect_predicted(found.ranks, report, 0, "streamed in " + std::to_string(budget));
    EXPECT_LE(report.peak_bytes.total, budget);
  }
  const Inspection small = opened(model.folder(), asked, 1000).inspect(request_of(asked));
  EXPECT_NE(small.unfit.find("`memory_budget` allows 1.0 KB"), std::string::npos) << small.unfit;
}

/// A method known only to this test: every call sends some bytes to the next rank.
class Telling final : public nn::Attention {
 public:
  Telling(const nn::Geometry& geometry, comm::Communicator& world, int64_t bytes)
      : local_(geometry), world_(world), bytes_(bytes) {}
  nn::Tensor attend(int site, const nn::TokenView& view, const nn::Qkv& heads) override {
    const int size = world_.size(), rank = world_.rank();
    comm::Pending told = world_.receive((rank + size - 1) % size, {"told", site});
    world_.send((rank + 1) % size,
                nn::Tensor::zeros({bytes_ + rank}, tensor::DType::u8, heads.q.device(),
                                  tensor::MemoryClass::buffers),
                {"told", site});
    const nn::Tensor out = local_.attend(site, view, heads);
    heard_ = told.wait();  // until the next call
    return out;
  }

 private:
  nn::LocalAttention local_;
  comm::Communicator& world_;
  int64_t bytes_;
  nn::Tensor heard_;
};

TEST(DryRun, AnUnknownMethodIsPredictedByRunningIt) {
  const SettledModel model;
  const tensor::BindScope bind(model.scope());
  RunOptions options = golden::options(Precision::bf16);
  options.plan = parse_plan("data=3");
  runtime::ModelState real, stage;
  runtime::open_model(model.folder(), options, real);
  runtime::copy_for_dry_run(real, options, stage);
  std::vector<std::string> seen;
  for (runtime::ModelState* state : {&real, &stage}) {
    const auto network = state->transformer();
    const runtime::RunMeters meters(state->workers.ranks.size());
    const auto flow = sample::rectified_flow(2);
    nn::Conditioning conditioning = state->spec->conditioning({1}, false);
    for (auto& [name, x] : conditioning.tensors) x = x.to(state->device());
    std::vector<std::string> did(3);
    runtime::launch_ranks(*state, meters, {}, [&](comm::Communicator* world) {
      const auto rank = static_cast<size_t>(world->rank());
      parallel::Setup setup(options.plan, network->geometry(), {3, {1, 4, 4}, 1, 2}, world);
      setup.attention = std::make_unique<Telling>(network->geometry(), *world, 5000);
      const auto latent = nn::Tensor::empty({16, 16}, tensor::DType::f32, state->device());
      if (!latent.is_meta()) std::fill_n(latent.data<float>(), latent.elements(), 0.5f);
      parallel::denoise(*network, conditioning, *flow,
                        {.scale = 1, .channels = 4, .prediction_channels = 4}, latent,
                        [](int) { return nn::Tensor(); }, setup, {});
      const tensor::MemoryTracker& memory = *tensor::current_scope().memory;
      did[rank] = fmt::format("{} buffers, {} in all, {:.0f} FLOP",
                              memory.peak(tensor::MemoryClass::buffers), memory.peak(),
                              meters.ranks[rank].work->total().flops);
      for (const auto& [key, entry] : world->ledger().entries())
        did[rank] += fmt::format("; {} {}: {} messages of {} bytes", key.first, key.second,
                                 entry.messages, entry.bytes);
    });
    EXPECT_NE(did[1].find("told 2: 2 messages of 10002 bytes"), std::string::npos) << did[1];
    seen.push_back(fmt::format("{}", fmt::join(did, "\n")));
  }
  EXPECT_EQ(seen[0], seen[1]);
}

}  // namespace
}  // namespace tessera
