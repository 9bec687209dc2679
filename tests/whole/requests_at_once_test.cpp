#include <functional>
#include <stop_token>
#include <thread>

#include "test_paths.h"
#include "whole/llada_golden.h"
#include "whole/pixart_text.h"

// Requests on several threads of a process, each bit-identical to the request alone.
namespace tessera {
namespace {

using golden::Scratch;
constexpr const char* kMoe = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";

struct Ask {
  std::string name;
  std::function<std::vector<float>()> answer;
};

Model open(const std::string& folder, const std::string& plan = "", bool keep = false) {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan(plan);
  options.keep_parts = keep;
  return Model::open(folder, options);
}

Ask image(const Model& model, const std::string& name, int64_t size, uint64_t seed, int count) {
  GenerateRequest q;
  q.classes = {"1"};
  q.width = q.height = size;
  q.seed = seed;
  q.count = count;
  q.steps = 3;
  q.decode = false;
  return {name, [&model, q] { return model.generate(q).latents; }};
}

Ask text(const Model& model, const std::string& name, int block, int max_tokens) {
  CompleteRequest q;
  q.prompt_ids = {{5, 17, 30, 2}, {8, 9}};
  q.max_tokens = max_tokens;
  q.block = block;
  q.stop_at_eos = StopAtEos::none;
  return {name, [&model, q] {
            const CompleteResult result = model.complete(q);
            std::vector<float> all{static_cast<float>(result.forwards)};
            for (const Completion& one : result.completions) {
              all.insert(all.end(), one.ids.begin(), one.ids.end());
              all.insert(all.end(), one.confidences.begin(), one.confidences.end());
            }
            return all;
          }};
}

void expect_as_alone(const std::vector<Ask>& asks, int times) {
  std::vector<std::vector<float>> alone;
  for (const Ask& ask : asks) alone.push_back(ask.answer());
  std::vector<std::string> said(asks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < asks.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        for (int t = 0; t < times && said[i].empty(); ++t)
          if (asks[i].answer() != alone[i]) said[i] = "another answer";
      } catch (const std::exception& e) {
        said[i] = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < asks.size(); ++i) {
    EXPECT_FALSE(alone[i].empty()) << asks[i].name;
    EXPECT_EQ(said[i], "") << asks[i].name;
  }
}

TEST(RequestsAtOnce, OfOneModelAreAnsweredAsAlone) {
  for (const bool keep : {false, true}) {
    const Model model = open(kMoe, "", keep);
    expect_as_alone({image(model, "small", 64, 1, 1), image(model, "large", 128, 2, 3)}, 50);
  }
}

TEST(RequestsAtOnce, OfModelsUnderOtherPlansAreAnsweredAsAlone) {
  const Model one = open(kMoe), ranks = open(kMoe, "expert=2"),
              stale = open(kMoe, "expert=2,schedule=interweaved,warmup=1");
  expect_as_alone({image(one, "one rank", 64, 1, 2), image(ranks, "two ranks", 64, 1, 2),
                   image(stale, "stale", 128, 3, 2)},
                  12);
}

TEST(RequestsAtOnce, OfOneModelOnRanksAreAnsweredAsAlone) {
  const Model ranks = open(kMoe, "expert=2");
  expect_as_alone({image(ranks, "small", 64, 1, 2), image(ranks, "large", 128, 2, 4)}, 12);
}

TEST(RequestsAtOnce, OfALanguageModelBesideImagesAreAnsweredAsAlone) {
  const Model moe = open(kMoe);
  const Model language = open(golden::LladaCase("llada2").folder + "/model"),
              ranks = open(golden::LladaCase("llada_moe").folder + "/model", "expert=2");
  expect_as_alone({image(moe, "image", 64, 1, 1), text(language, "blocks of 8", 8, 12),
                   text(language, "blocks of 4", 4, 9), text(ranks, "on ranks", 8, 12)},
                  10);
}

TEST(RequestsAtOnce, WithTextAndAVaeAreAnsweredAsAlone) {
  const Scratch scratch;
  const Model model = open(TESSERA_TEST_DATA "/diffusers/pixart_alpha/model");
  GenerateRequest q;
  q.embeddings = golden::pixart_text(scratch);
  q.steps = 2;
  q.width = q.height = 128;  // the trained 1024 take minutes
  const auto pixels = [&model](const GenerateRequest& request) {
    const Image image = model.generate(request).images.at(0);
    return std::vector<float>(image.rgb.begin(), image.rgb.end());
  };
  GenerateRequest other = q;
  other.seed = 7;
  other.vae_tiling = VaeTiling::on;
  other.vae_tile = 64;
  expect_as_alone(
      {{"whole", [&] { return pixels(q); }}, {"in tiles", [&] { return pixels(other); }}}, 8);
}

TEST(RequestsAtOnce, OneThatIsCancelledLeavesTheOtherAlone) {
  const Model model = open(kMoe);
  const Ask whole = image(model, "whole", 128, 5, 2);
  const std::vector<float> alone = whole.answer();
  bool same = true;
  std::thread other([&] {
    for (int i = 0; i < 10; ++i) same = whole.answer() == alone && same;
  });
  for (int i = 0; i < 10; ++i) {
    std::stop_source stop;
    RunControl control{.stop = stop.get_token()};
    control.on_progress = [&](const Progress& p) {
      if (p.step == 1) stop.request_stop();
    };
    GenerateRequest q;
    q.classes = {"1"};
    q.steps = 3;
    q.decode = false;
    EXPECT_THROW(model.generate(q, control), Error);
  }
  other.join();
  EXPECT_TRUE(same);
}

TEST(RequestsAtOnce, ACallbackMayAskItsOwnModel) {
  const Model model = open(kMoe);
  const Ask inner = image(model, "inner", 64, 3, 1);
  const std::vector<float> alone = inner.answer();
  GenerateRequest q;
  q.classes = {"2"};
  q.steps = 2;
  q.decode = false;
  const std::vector<float> outer = model.generate(q).latents;
  std::vector<float> inside;
  RunControl control;
  control.on_progress = [&](const Progress& p) {
    if (p.step == 1 && inside.empty()) inside = inner.answer();
  };
  EXPECT_EQ(model.generate(q, control).latents, outer);
  EXPECT_EQ(inside, alone);
}

// Work and memory in a report belong to its request, not to others.
TEST(RequestsAtOnce, AReportCountsItsOwnRequest) {
  for (const char* plan : {"", "expert=2"}) {
    const Model model = open(kMoe, plan, true);
    const auto report = [&](int64_t size, int count) {
      GenerateRequest q;
      q.classes = {"1"};
      q.width = q.height = size;
      q.count = count;
      q.steps = 2;
      q.decode = false;
      return model.generate(q).report;
    };
    const Report large = report(128, 4), small = report(64, 1);
    EXPECT_GT(small.flops, 0);
    EXPECT_EQ(report(64, 1).flops, small.flops);
    EXPECT_GT(small.peak_bytes.activations, 0);
    EXPECT_LT(2 * small.peak_bytes.activations, large.peak_bytes.activations);
    EXPECT_EQ(small.peak_bytes.weights, large.peak_bytes.weights) << "found where they are";
    std::thread other([&] {
      for (int i = 0; i < 10; ++i)
        EXPECT_GE(report(128, 4).peak_bytes.activations, large.peak_bytes.activations / 2);
    });
    for (int i = 0; i < 20; ++i) {
      const Report again = report(64, 1);
      if (*plan == 0) {
        EXPECT_EQ(again.peak_bytes.activations, small.peak_bytes.activations);
      }
      EXPECT_LT(again.peak_bytes.activations, large.peak_bytes.activations / 2) << plan;
      EXPECT_EQ(again.peak_bytes.weights, small.peak_bytes.weights) << plan;
      EXPECT_EQ(again.flops, small.flops) << plan;
    }
    other.join();
  }
}

// Models, sizes, plans and dtypes, all at once.
TEST(RequestsAtOnce, OfOtherModelsSizesAndPlansAreAnsweredAsAlone) {
  const Scratch scratch;
  const Model one = open(kMoe), ranks = open(kMoe, "expert=2,schedule=interweaved,warmup=1"),
              shards = open(kMoe, "distrifusion=2"),
              language = open(golden::LladaCase("llada2").folder + "/model");
  RunOptions bf16 = golden::options(Precision::bf16);
  const Model shapes = Model::open("shapes", bf16);
  GenerateRequest q;
  q.classes = {"3"};
  q.steps = 2;
  const Ask decoded{"shapes, decoded", [&] {
                      const Image made = shapes.generate(q).images.at(0);
                      return std::vector<float>(made.rgb.begin(), made.rgb.end());
                    }};
  expect_as_alone({image(one, "small", 64, 1, 1), image(one, "large", 128, 2, 3),
                   image(ranks, "stale, on ranks", 64, 3, 2), image(shards, "shards", 128, 4, 1),
                   text(language, "text", 8, 12), decoded},
                  50);
}

}  // namespace
}  // namespace tessera
