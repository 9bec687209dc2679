#include "pipeline/check_request.h"

#include <chrono>
#include <utility>

#include "tessera/request_fields.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

const std::string kShapes = TESSERA_MODELS_DIR "/shapes";

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

GenerateRequest small() {
  GenerateRequest q;
  q.classes = {"1"};
  q.steps = 2;
  q.width = q.height = 32;
  q.decode = false;
  return q;
}

// Checks that a value outside the bounds of a field's line is refused, and names the field.
template <class Request>
void expect_bounds() {
  Request unset;
  visit_fields(unset, [](const Field& field, auto&) {
    if (field.most == 0) return;
    for (const double outside : {field.least - 2, field.most + 1}) {
      Request request;
      visit_fields(request, [&]<class Value>(const Field& other, Value& given) {
        if constexpr (std::is_convertible_v<double, Value> && !WordValue<Value>)
          if (std::string(other.name) == field.name) given = static_cast<Value>(outside);
      });
      const std::string message = refusal([&] { pipeline::check_request(request); });
      EXPECT_TRUE(message.starts_with("`" + std::string(field.name) + "` ")) << message;
    }
  });
}

TEST(CheckRequest, FieldsOutsideTheirBounds) {
  expect_bounds<GenerateRequest>();
  expect_bounds<CompleteRequest>();
}

TEST(CheckRequest, OptionsOutOfTheirRange) {
  const auto says = [](const std::function<void(RunOptions&)>& change, const char* name) {
    RunOptions o;
    change(o);
    const std::string message = refusal([&] { Model::open(kShapes, o); });
    EXPECT_NE(message.find(name), std::string::npos) << message;
  };
  says([](RunOptions& o) { o.plan.data = 0; }, "'data=0'");  // a divisor
  says([](RunOptions& o) { o.plan.expert = 0; }, "'expert=0'");
  says([](RunOptions& o) { o.plan.tensor = -2; }, "'tensor=-2'");
  says([](RunOptions& o) { o.plan.warmup = 0; }, "'warmup=0'");
  says([](RunOptions& o) { o.plan.budget = 101; }, "'budget=101'");
  says([](RunOptions& o) { o.plan.schedule = static_cast<ExpertSchedule>(99); }, "schedule");
  says([](RunOptions& o) { o.plan.sync = static_cast<SyncLayers>(-1); }, "sync");
  says([](RunOptions& o) { o.plan.conditional = static_cast<KeptSlot>(9); }, "conditional");
  says([](RunOptions& o) { o.plan.placement = static_cast<ExpertPlacement>(9); }, "placement");
  says(
      [](RunOptions& o) {
        o.plan.placement_list = {0, -1};
        o.plan.placement = ExpertPlacement::list;
      },
      "placement");
  says([](RunOptions& o) { o.threads = -1; }, "`threads` -1");
  says([](RunOptions& o) { o.memory_budget = -1; }, "`memory_budget` -1");
  says([](RunOptions& o) { o.comm_timeout = 0ms; }, "`comm_timeout`");
  says([](RunOptions& o) { o.comm_timeout = -5ms; }, "`comm_timeout`");
  says([](RunOptions& o) { o.precision = static_cast<Precision>(7); }, "`dtype` 7");
  says([](RunOptions& o) { o.device.kind = static_cast<DeviceKind>(2); }, "`device` 2");
  says([](RunOptions& o) { o.device = {DeviceKind::cuda, -1}; }, "`device` cuda -1");
}

TEST(CheckRequest, RequestsOutOfTheirRange) {
  Model model = Model::open(kShapes, {.threads = 2});
  const auto says = [&](const std::function<void(GenerateRequest&)>& change, const char* name) {
    GenerateRequest q = small();
    change(q);
    const std::string message = refusal([&] { model.generate(q); });
    EXPECT_NE(message.find(name), std::string::npos) << message;
  };
  says([](GenerateRequest& q) { q.count = 0; }, "`count` 0");
  says([](GenerateRequest& q) { q.width = -8; }, "`width` -8");
  says([](GenerateRequest& q) { q.height = INT64_MIN; }, "`height`");
  says([](GenerateRequest& q) { q.frames = INT64_MIN; }, "`frames`");
  says([](GenerateRequest& q) { q.text_tokens = -1; }, "`text_tokens` -1");
  says([](GenerateRequest& q) { q.steps = -1; }, "`steps` -1");
  says([](GenerateRequest& q) { q.guidance = NAN; }, "`guidance` nan");
  says([](GenerateRequest& q) { q.scheduler = static_cast<SchedulerName>(99); }, "`scheduler` 99");
  says([](GenerateRequest& q) { q.scheduler = SchedulerName::unipc; }, "rectified-flow, ddpm");
  says([](GenerateRequest& q) { q.noise = static_cast<NoiseSource>(5); }, "`noise` 5");
  says([](GenerateRequest& q) { q.vae_tiling = static_cast<VaeTiling>(5); }, "`vae_tiling` 5");
  says([](GenerateRequest& q) { q.vae_chunk = -1; }, "`vae_chunk` -1");
  const auto tall = [](GenerateRequest& q) { q.decode = true, q.vae_chunk = 4096; };
  says(tall, "`vae_chunk` 4096: an image here has");
  says([](GenerateRequest& q) { q.save_latents = q.trace = "/tmp/one"; }, "written twice");
  ForwardRequest forward;
  forward.vae_tile = -1;
  EXPECT_NE(refusal([&] { model.forward(forward); }).find("-1"), std::string::npos);
  forward = {};
  forward.vae_chunk = 8;
  EXPECT_NE(refusal([&] { model.forward(forward); }).find("vae.encode; leave it out"),
            std::string::npos);
  forward = {.component = static_cast<ModelPart>(9)};
  EXPECT_NE(refusal([&] { model.forward(forward); }).find("`component` 9"), std::string::npos);
  Model language = Model::open(TESSERA_TEST_DATA "/moe/llada_moe/model", {.threads = 2});
  const auto complete = [&](const std::function<void(CompleteRequest&)>& change, const char* name) {
    CompleteRequest q;
    q.prompt_ids = {{1, 2}};
    change(q);
    const std::string message = refusal([&] { language.complete(q); });
    EXPECT_NE(message.find(name), std::string::npos) << message;
  };
  complete([](CompleteRequest& q) { q.block = -1; }, "`block` -1");
  complete([](CompleteRequest& q) { q.steps = -1; }, "`steps` -1");
  complete([](CompleteRequest& q) { q.max_tokens = -1; }, "`max_tokens` -1");
  complete([](CompleteRequest& q) { q.cache.kind = static_cast<KvCache>(9); }, "`cache` 9");
  complete([](CompleteRequest& q) { q.cache = {KvCache::vicinity, -1}; }, "vicinity -1");
  complete([](CompleteRequest& q) { q.stop_at_eos = static_cast<StopAtEos>(3); },
           "`stop_at_eos` 3");
  complete([](CompleteRequest& q) { q.temperature = NAN; }, "`temperature` nan");
  complete([](CompleteRequest& q) { q.top_k = -1; }, "`top_k` -1");
  complete([](CompleteRequest& q) { q.top_p = NAN; }, "`top_p` nan");
  complete([](CompleteRequest& q) { q.top_p = 0; }, "top_p 0");
  complete([](CompleteRequest& q) { q.repetition_penalty = NAN; }, "`repetition_penalty` nan");
  complete([](CompleteRequest& q) { q.n = 0; }, "`n` 0");
  complete([](CompleteRequest& q) { q.n = 2; }, "one and the same");
  complete([](CompleteRequest& q) { q.top_k = 2; }, "temperature 0 draws nothing");
  complete([](CompleteRequest& q) { q.logprobs = -1; }, "`logprobs` -1");
}

TEST(CheckRequest, WhatARunRefusesIsRefusedAhead) {
  const Model model = Model::open(kShapes, {.threads = 2});
  EXPECT_NO_THROW(model.check(small()));
  const auto changes = std::vector<std::function<void(GenerateRequest&)>>{
      [](auto& q) { q.classes = {"purple cow"}; },
      [](auto& q) { q.width = 999; },
      [](auto& q) { q.steps = 0; },
      [](auto& q) {
        q.seeds = {1, 2, 3};
      },
      [](auto& q) { q.scheduler = SchedulerName::lcm; },
      [](auto& q) { q.prompts = {"a snail"}; }};
  for (const auto& change : changes) {
    GenerateRequest q = small();
    change(q);
    const std::string ahead = refusal([&] { model.check(q); });
    EXPECT_FALSE(ahead.empty());
    EXPECT_EQ(ahead, refusal([&] { model.generate(q); }));
  }
  refusal([&] { model.check(CompleteRequest{.prompts = {"x"}}); });
}

TEST(CheckRequest, SoIsWhatACompletionRefuses) {
  const Model model = Model::open("tasks-a", {.threads = 2});
  CompleteRequest fine;
  fine.prompts = {"sort hello="};
  EXPECT_NO_THROW(model.check(fine));
  const auto changes = std::vector<std::function<void(CompleteRequest&)>>{
      [](auto& q) { q.prompts = {}; },          [](auto& q) { q.prompts = {""}; },
      [](auto& q) { q.select = "nonsense:9"; }, [](auto& q) { q.decode = "nonsense"; },
      [](auto& q) { q.max_tokens = 100000; },   [](auto& q) { q.chat = "no JSON"; }};
  for (const auto& change : changes) {
    CompleteRequest q = fine;
    change(q);
    const std::string ahead = refusal([&] { model.check(q); });
    EXPECT_FALSE(ahead.empty());
    EXPECT_EQ(ahead, refusal([&] { model.complete(q); }));
  }
  refusal([&] { model.check(GenerateRequest{}); });
}

TEST(CheckRequest, AModelThatWasMovedFrom) {
  Model model = Model::open(kShapes, {.threads = 2});
  const Model other = std::move(model);
  for (const auto& ask : std::vector<std::function<void()>>{
           [&] { model.generate(small()); }, [&] { model.forward({}); },
           [&] { model.complete({}); }, [&] { model.inspect(); }, [&] { model.classes(); },
           [&] { model.makes_videos(); }})
    EXPECT_NE(refusal(ask).find("moved from"), std::string::npos);
  EXPECT_GT(other.classes(), 0);
}

TEST(CheckRequest, ARefusalInACallbackEndsItsRequestAlone) {
  Model model = Model::open(kShapes, {.threads = 2});
  RunControl control;
  control.on_progress = [&](const Progress&) { model.forward({}); };
  refusal([&] { model.generate(small(), control); });
  EXPECT_EQ(model.generate(small()).steps, 2) << "the next one after an error";
}

// If a callback throws on a thread of a rank, other ranks must not wait for the rank.
TEST(CheckRequest, ACallbackMayThrowAnything) {
  RunOptions options{.threads = 2};
  options.plan = parse_plan("expert=2");
  options.comm_timeout = 100s;
  Model model = Model::open(kShapes, options);
  GenerateRequest q = small();
  q.count = 2;
  RunControl control;
  control.on_progress = [](const Progress& p) {
    if (p.phase == Phase::denoise && p.step == 1) throw 7;
  };
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(model.generate(q, control), int);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s) << "the other rank waited";
  EXPECT_EQ(model.generate(q).steps, 2);
}

}  // namespace
}  // namespace tessera
