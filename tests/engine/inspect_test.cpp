#include "base/json.h"
#include "base/stop.h"
#include "load/safetensors.h"
#include "load/tensor_set.h"
#include "parallel/experts/exchange.h"
#include "runtime/model_state.h"
#include "test_paths.h"
#include "whole/golden.h"
#include "whole/text_pipeline.h"

namespace tessera {
namespace {

TEST(Inspect, CountsTheParametersOfThePublishedSizes) {
  // Transformer and position table of DiT-MoE-XL and G as their authors' code builds them.
  const RunOptions run = golden::options(Precision::bf16);
  EXPECT_EQ(inspect_by_name("dit_moe_xl", run).components[0].parameters, 4168172192);
  EXPECT_EQ(inspect_by_name("dit_moe_g", run).components[0].parameters, 16503731232);
}

TEST(Inspect, MemoryOfARunHoldsTheWeights) {
  const auto found = inspect_by_name("dit_moe_s", golden::options(Precision::bf16));
  EXPECT_GT(found.memory.at("weights"), 2 * found.components[0].parameters * 9 / 10);
  EXPECT_GT(found.memory.at("peak"), found.memory.at("weights"));
  EXPECT_GT(found.flops_per_step, 1e9);
}

TEST(Inspect, KnowsItsNames) {
  try {
    inspect_by_name("dit_moe_xxl", golden::options(Precision::bf16));
    FAIL() << "an unknown size was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("dit_moe_xl"), std::string::npos);
  }
}

TEST(Inspect, CountsTheAskedTokensOfText) {
  GenerateRequest request;
  request.width = request.height = 256;
  const auto flops = [&](const std::string& model, int64_t tokens) {
    request.text_tokens = tokens;
    return inspect_by_name(model, golden::options(Precision::bf16), request).flops_per_step;
  };
  for (const auto& [model, usual] : {std::pair("flux_1_dev", 512), {"sd3_medium", 256}}) {
    EXPECT_EQ(flops(model, usual), flops(model, 0)) << model;
    EXPECT_LT(flops(model, 128), flops(model, 0)) << model;
  }
  request.text_tokens = 32;
  request.width = request.height = 0;
  const RunOptions run = golden::options(Precision::f32);
  const std::string folder = TESSERA_TEST_DATA "/diffusers/z_image_turbo/model";
  EXPECT_EQ(Model::open(folder, run).inspect(request).prompt_tokens, 32);
  EXPECT_EQ(Model::open(folder, run).inspect({}).prompt_tokens, 512);
  request.text_tokens = 1 << 20;
  EXPECT_THROW(inspect_by_name("flux_1_dev", run, request), Error);
  request.text_tokens = 5;
  const auto classes = inspect_by_name("dit_moe_s", run, request);
  EXPECT_EQ(
      std::ranges::count(classes.notes, "`text_tokens` has no effect: this model reads no text"),
      1);
  EXPECT_THROW(inspect_by_name("hunyuan_dit", run, request), Error) << "texts of one length";
}

TEST(Inspect, RefusesRunsThatCannotBe) {
  const RunOptions run = golden::options(Precision::bf16);
  for (const auto& [count, width] : {std::pair<int, int64_t>{0, 256}, {1, -8}, {1, 100}}) {
    GenerateRequest request;
    request.count = count;
    request.width = width;
    EXPECT_THROW(inspect_by_name("dit_moe_s", run, request), Error) << count << ' ' << width;
  }
}

RunOptions under(const std::string& plan, Precision precision = Precision::bf16) {
  RunOptions run = golden::options(precision);
  run.plan = parse_plan(plan);
  return run;
}

TEST(Inspect, RanksOfAPlanShareTheExperts) {
  GenerateRequest request;
  request.count = 16;
  const auto alone = inspect_by_name("dit_moe_xl", under("schedule=interweaved"), request);
  const auto shared = inspect_by_name("dit_moe_xl", under("expert=8"), request);
  const auto stale = inspect_by_name("dit_moe_xl", under("expert=8,schedule=interweaved"), request);
  ASSERT_EQ(alone.ranks.size(), 1u);
  ASSERT_EQ(shared.ranks.size(), 8u);
  EXPECT_EQ(shared.plan, "data=8,expert=8");
  const Inspection::Rank& rank = shared.ranks[7];
  EXPECT_EQ(rank.experts, 1);
  EXPECT_EQ(rank.tokens, 2 * 2 * 256);
  // 28 layers, 7 experts of 3 * 1152 * 4608 elements less.
  EXPECT_NEAR(double(alone.ranks[0].weights - rank.weights), 28.0 * 7 * 3 * 1152 * 4608 * 2, 1e8);
  EXPECT_EQ(rank.kv, 0);
  EXPECT_GT(rank.sent, 28 * rank.tokens * 7 / 8 * 2 * 2 * 1152 * 2) << "rows, there and back";
  // Rows of all layers are in flight at once, and rows of a single layer at home.
  const int64_t kept = 28 * rank.tokens * 2 * (1152 * 2 + 4);
  EXPECT_GT(stale.ranks[7].buffers, kept);
  EXPECT_LT(stale.ranks[7].buffers, kept + kept / 7);
  EXPECT_LT(rank.buffers, kept / 7);
  EXPECT_LT(stale.ranks[7].activations, rank.activations * 11 / 10)
      << "results that wait do not keep those that were sent to others";
  EXPECT_EQ(stale.ranks[0], stale.ranks[7]);
}

TEST(Inspect, RanksMayBeUnequal) {
  const auto found = inspect_by_name("dit_moe_s", under("expert=3,placement=0+0+0+0+0+1+1+1"));
  ASSERT_EQ(found.ranks.size(), 3u);  // a single image
  EXPECT_EQ(found.ranks[0].tokens, 0);
  EXPECT_EQ(found.ranks[2].tokens, 512);
  EXPECT_EQ(found.ranks[0].experts, 5);
  EXPECT_EQ(found.ranks[2].experts, 0);
  EXPECT_GT(found.ranks[0].weights, found.ranks[1].weights);
  EXPECT_GT(found.ranks[2].activations, found.ranks[0].activations);
}

TEST(Inspect, BadPlansAreRefusedBeforeAnythingIsComputed) {
  GenerateRequest request;
  for (const auto& [plan, reason] :
       {std::pair<std::string, std::string>{"expert=9", "the model has 8 experts"},
        {"data=2", "the request has 1 samples"},
        {"schedule=interweaved,sync=28", "names layer 28"}})
    try {
      inspect_by_name("dit_moe_xl", under(plan), request);
      ADD_FAILURE() << plan << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plan);
      EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what();
    }
}

TEST(Inspect, BadPlansOfLanguageModelsAreRefused) {
  for (const auto& [plan, reason] :
       {std::pair<std::string, std::string>{"tensor=3", "tensor=3 does not divide"},
        {"expert=99", "expert=99"},
        {"distrifusion=2", "distrifusion= and shards= are for images; language models take"},
        {"data=2,vae=2", "vae= decodes images; leave it out of a language model's plan"}})
    try {
      Model::open(TESSERA_TEST_DATA "/moe/llada2/model", under(plan)).inspect();
      ADD_FAILURE() << plan << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plan);
      EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find("nothing is stale"), std::string::npos) << e.what();
    }
}

TEST(Inspect, PredictsTheWeightsOfARank) {
  const std::string folder = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";
  const load::TensorSet tensors = load::open_component(folder);
  const base::Json config = base::read_json(folder + "/config.json");
  const auto spec = models::pipeline_of("dit_moe", {config, "config.json"});
  for (Precision precision : {Precision::f32, Precision::bf16}) {
    const auto predicted = Model::open(folder, under("expert=3", precision)).inspect().ranks;
    for (size_t r = 0; r < 3; ++r) {
      nn::Portion portion = spec.whole();
      for (int owner : parallel::experts_in_blocks(4, 3))
        portion.experts.push_back(owner == int(r));
      tensor::Scope scope;
      scope.memory = std::make_shared<tensor::MemoryTracker>();
      const tensor::BindScope bind(scope);
      const load::WeightStore store;
      const auto network =
          spec.make(*store.open(tensors), portion,
                    precision == Precision::f32 ? tensor::DType::f32 : tensor::DType::bf16);
      EXPECT_EQ(scope.memory->current(tensor::MemoryClass::weights), predicted[r].weights) << r;
    }
  }
}

// Within a callback of a stopped run, the thread's bound stop is the run's.
TEST(Inspect, HeedsItsOwnStopAlone) {
  std::stop_source stopped;
  stopped.request_stop();
  const RunOptions run = golden::options(Precision::f32);
  const Model model = Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", run);
  const base::BindStop around(stopped.get_token());
  EXPECT_FALSE(model.inspect().components.empty());
  EXPECT_FALSE(inspect_by_name("dit_moe_s", run).components.empty());
  EXPECT_THROW(model.inspect({}, stopped.get_token()), Error);
}

TEST(Inspect, ReadsAFolder) {
  const Model model =
      Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", golden::options(Precision::f32));
  const auto found = model.inspect();
  ASSERT_FALSE(found.components.empty());
  EXPECT_EQ(found.components[0].facts.at("depth"), "3");
  EXPECT_GT(found.components[0].parameters, 1000);
}

// Bytes sent by each rank in the second step of a request.
std::vector<int64_t> second_step(const Model& model, GenerateRequest request) {
  std::vector<int64_t> sent;
  for (const int steps : {1, 2}) {
    request.steps = steps;
    const GenerateResult made = model.generate(request);
    for (size_t r = 0; r < made.report.per_rank.size(); ++r)
      if (steps == 1)
        sent.push_back(-made.report.per_rank[r].sent_bytes);
      else
        sent[r] += made.report.per_rank[r].sent_bytes;
  }
  return sent;
}

std::vector<int64_t> predicted(const Model& model, const GenerateRequest& request) {
  std::vector<int64_t> sent;
  for (const Inspection::Rank& rank : model.inspect(request).ranks) sent.push_back(rank.sent);
  return sent;
}

GenerateRequest small_request() {
  GenerateRequest request;
  request.width = request.height = 64;
  request.decode = false;
  return request;
}

TEST(Inspect, PredictsWhatRanksSendWithTextsAsLongAsTheEncodersReadThem) {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan("ulysses=2");
  auto folders = golden::text_pipelines();
  std::map<std::string, std::string> paths{{"scenes", runtime::resolve_model("scenes")}};
  for (const auto& [name, folder] : folders) paths[name] = folder->path();
  for (const auto& [name, path] : paths) {
    const Model model = Model::open(path, options);
    const GenerateRequest asked = small_request();
    GenerateRequest request = asked;
    request.prompts = {"a red circle"};
    EXPECT_EQ(predicted(model, asked), second_step(model, request)) << name;
  }
}

TEST(Inspect, PredictsWhatRanksSendWithGivenEmbeddings) {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan("ulysses=2");
  const Model model = Model::open(runtime::resolve_model("scenes"), options);
  const golden::Scratch scratch;
  GenerateRequest request = small_request();
  request.embeddings = scratch / "text.safetensors";
  std::map<std::string, tensor::Tensor> given;
  for (const std::string branch : {"", "negative_"}) {
    given[branch + "prompt_embeds"] = tensor::Tensor::zeros({2, 24, 128}, tensor::DType::f32);
    given[branch + "pooled_prompt_embeds"] = tensor::Tensor::zeros({2, 128}, tensor::DType::f32);
  }
  load::write_safetensors(request.embeddings, given);
  EXPECT_EQ(predicted(model, request), second_step(model, request));
  const Inspection found = model.inspect(request);
  EXPECT_EQ(found.sequences, 4);
  const Model classes = Model::open(runtime::resolve_model("shapes"), options);
  EXPECT_THROW(classes.inspect(request), Error);
}

}  // namespace
}  // namespace tessera
