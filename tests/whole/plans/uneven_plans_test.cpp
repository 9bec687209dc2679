#include <vector>

#include "whole/random_model.h"

// Sizes indivisible by any number of ranks: prompts of several lengths, few tokens, many frames,
// non-square images, more ranks than text or tokens. Each plan gives the results of its oracle.
namespace tessera {
namespace {

using golden::RandomModel;
using models::kNetworks;
using tensor::Tensor;

enum { kMoe, kPixArt, kSd3, kFlux, kHunyuan, kVideo };
const char* const kSchedulers[] = {"",         "pixart_alpha",   "sd35",
                                   "flux_dev", "hunyuandit_v11", "cogvideox_2b"};

struct Row {
  const char* what;
  int family;
  int64_t width, height, frames;
  std::vector<int> prompts;    ///< number of tokens of each; for DiT-MoE the class
  std::vector<int> negatives;  ///< a single text for all, or a text each; none: no guidance
  int64_t text;                ///< tokens of a text, padding included
  int count;
  const char* oracle;
  std::vector<const char*> same, near;  ///< plans: to the last bit, and within rounding in f32
};

const std::vector<Row> kRows = {
    {"prompts of 1, 7 and 4 tokens under one negative prompt",
     kPixArt,
     48,
     80,
     0,
     {1, 7, 4},
     {2},
     7,
     1,
     "",
     {"data=3,cfg=2", "data=2", "cfg=2,ulysses=5", "ulysses=7", "data=3,ulysses=2,cfg=2",
      "pipefusion=2,patches=1,data=3"},
     {"ring=5", "ring=7", "cfg=2,ring=3,ulysses=2"}},
    {"a negative prompt each, two images of each, stale patches",
     kPixArt,
     80,
     48,
     0,
     {5, 2},
     {1, 6},
     6,
     2,
     "patches=5",
     {"pipefusion=2,patches=5,data=3", "cfg=2,ulysses=5,patches=5", "data=4,cfg=2,patches=5"},
     {"ring=5,patches=5", "ring=3,pipefusion=2,patches=5,ulysses=2"}},
    {"ranks without text",
     kSd3,
     48,
     64,
     0,
     {2, 2},
     {2},
     2,
     1,
     "",
     {"ulysses=5", "ulysses=7", "pipefusion=3,patches=1,ulysses=3"},
     {"ring=5", "ring=7", "ring=3,ulysses=2"}},
    {"ranks without text, stale patches",
     kSd3,
     48,
     64,
     0,
     {1},
     {1},
     1,
     2,
     "patches=3",
     {"ulysses=5,patches=3", "pipefusion=3,ulysses=2,cfg=2,patches=3",
      "data=2,ulysses=3,patches=3"},
     {"ring=5,patches=3", "ring=7,patches=3"}},
    {"ranks without a token",
     kSd3,
     16,
     16,
     0,
     {1, 1, 1},
     {},
     1,
     1,
     "",
     {"ulysses=5", "ulysses=7", "data=3,ulysses=3"},
     {"ring=5", "ring=7", "data=3,ring=2,ulysses=2"}},
    {"one token and no text among its own",
     kHunyuan,
     16,
     16,
     0,
     {3, 1},
     {2, 3},
     0,
     1,
     "",
     {"ulysses=5", "cfg=2,data=2,ulysses=2", "pipefusion=3,patches=1"},
     {"ring=7", "ring=2,ulysses=3"}},
    {"long skips over three stages of four blocks",
     kHunyuan,
     48,
     80,
     0,
     {3, 1, 2},
     {2},
     0,
     1,
     "patches=4",
     {"pipefusion=3,patches=4", "pipefusion=3,ulysses=5,patches=4", "data=3,cfg=2,patches=4"},
     {"ring=5,patches=4", "pipefusion=3,ring=3,patches=4"}},
    {"a wide image and a text that is longer",
     kFlux,
     80,
     16,
     0,
     {9, 9, 9},
     {9, 9, 9},
     9,
     1,
     "",
     {"ulysses=5", "ulysses=7", "cfg=2,data=3", "pipefusion=3,patches=1,cfg=2"},
     {"ring=5", "ring=7"}},
    {"patches of a wide image, where the text is most of the first",
     kFlux,
     80,
     16,
     0,
     {9},
     {},
     9,
     2,
     "patches=3",
     {"pipefusion=3,patches=3", "ulysses=5,patches=3"},
     {"ring=2,patches=3", "ring=5,patches=3"}},
    {"49 frames",
     kVideo,
     32,
     16,
     49,
     {4, 4},
     {4},
     4,
     1,
     "",
     {"ulysses=5", "ulysses=7", "cfg=2,data=2,ulysses=3", "pipefusion=2,patches=1"},
     {"ring=5", "ring=7", "ring=2,ulysses=3"}},
    {"49 frames in patches",
     kVideo,
     16,
     32,
     49,
     {4},
     {4},
     4,
     1,
     "patches=5",
     {"pipefusion=2,patches=5", "pipefusion=2,ulysses=3,patches=5", "cfg=2,ulysses=5,patches=5"},
     {"ring=5,patches=5", "pipefusion=2,ring=3,patches=5"}},
    {"49 frames in bands",
     kVideo,
     16,
     48,
     49,
     {4},
     {},
     4,
     1,
     "patches=3,cut=bands",
     {"pipefusion=2,patches=3,cut=bands", "ulysses=7,patches=3,cut=bands"},
     {"ring=5,patches=3,cut=bands"}},
    {"four experts on three ranks, a rank without a sample",
     kMoe,
     48,
     80,
     0,
     {4, 0, 3},
     {1},
     0,
     1,
     "",
     {"data=3,expert=3", "ulysses=7", "cfg=2,ulysses=3,expert=3", "data=4,expert=4"},
     {"ring=4,expert=4", "ring=7"}},
    {"stale experts and patches on five and three shards",
     kMoe,
     48,
     80,
     0,
     {4, 0, 3},
     {1},
     0,
     1,
     "patches=3,schedule=interweaved",
     {"ulysses=5,patches=3,schedule=interweaved",
      "ulysses=3,expert=3,patches=3,schedule=interweaved",
      "pipefusion=2,ulysses=3,expert=3,patches=3,schedule=interweaved"},
     {"ring=5,patches=3,schedule=interweaved", "ring=3,expert=3,patches=3,schedule=interweaved"}},
};

// Embeddings of prompts and negative prompts with their masks; DiT-MoE has none.
std::map<std::string, Tensor> text_of(const Row& row, const models::PipelineSpec& spec) {
  std::map<std::string, Tensor> text;
  for (const auto& [given, argument] : spec.text_inputs)
    for (const bool negative : {false, true}) {
      const std::vector<int>& lengths = negative ? row.negatives : row.prompts;
      const std::string name = (negative ? "negative_" : "") + given;
      const auto count = static_cast<int64_t>(lengths.size());
      if (count == 0) continue;
      if (given.find("mask") == std::string::npos) {
        for (const auto& input : spec.inputs) {
          if (input.name != argument) continue;
          std::vector<int64_t> sizes{count};
          sizes.insert(sizes.end(), input.sizes.begin(), input.sizes.end());
          if (sizes.size() == 3 && row.text > 0) sizes[1] = row.text;
          text[name] = models::NamedNoise().get(name, tensor::Shape(sizes));
        }
        continue;
      }
      const bool second = given != "prompt_attention_mask";
      const std::string of =
          std::string(negative ? "negative_" : "") + (second ? "prompt_embeds_2" : "prompt_embeds");
      Tensor mask = Tensor::zeros({count, text.at(of).size(1)}, tensor::DType::i32);
      for (int64_t p = 0; p < count; ++p)
        std::fill_n(mask.row<int32_t>(p), lengths[static_cast<size_t>(p)], 1);
      text[name] = mask;
    }
  return text;
}

GenerateRequest request_of(const Row& row, const models::PipelineSpec& spec,
                           const std::string& embeddings) {
  GenerateRequest q;
  q.decode = false;
  q.steps = 3;
  q.seed = 5;
  q.width = row.width;
  q.height = row.height;
  q.frames = row.frames;
  q.count = row.count;
  q.guidance = spec.embeds_guidance ? 3.5f : row.negatives.empty() ? 1 : 2.5f;
  if (spec.embeds_guidance && !row.negatives.empty()) q.true_guidance = 2.5f;
  if (row.family == kMoe) {
    for (const int one : row.prompts) q.classes.push_back(std::to_string(one));
    return q;
  }
  load::write_safetensors(embeddings, text_of(row, spec));
  q.embeddings = embeddings;
  return q;
}

TEST(UnevenPlans, GiveWhatTheirOracleGives) {
  const golden::Scratch scratch;
  for (const Row& row : kRows) {
    const RandomModel model(kNetworks[row.family], kSchedulers[row.family]);
    const GenerateRequest request = request_of(row, model.spec, scratch / "text.safetensors");
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      const auto latents = [&](const char* plan) {
        RunOptions options = golden::options(precision);
        options.plan = parse_plan(plan);
        options.threads = 2;
        return Model::open(model.path(), options).generate(request).latents;
      };
      const auto one = latents(row.oracle);
      const size_t samples = row.prompts.size() * static_cast<size_t>(row.count);
      ASSERT_EQ(one.size() % samples, 0u) << row.what;
      const auto each = static_cast<std::ptrdiff_t>(one.size() / samples);
      if (samples > 1) {
        EXPECT_FALSE(std::equal(one.begin(), one.begin() + each, one.begin() + each)) << row.what;
      }
      for (const char* plan : row.same) EXPECT_EQ(latents(plan), one) << row.what << ": " << plan;
      if (precision == Precision::bf16) continue;
      for (const char* plan : row.near)
        EXPECT_LT(golden::l2_error(latents(plan), one), 1e-5 * 3 * 4) << row.what << ": " << plan;
    }
  }
}

}  // namespace
}  // namespace tessera
