#include <fstream>
#include <functional>

#include "base/input_file.h"
#include "load/fused_experts.h"
#include "load/gguf_metadata.h"
#include "load/gguf_model.h"
#include "load/name_tables.h"
#include "whole/canvas_model.h"
#include "whole/text_model.h"

// Language models in single GGUF files, with configuration, tokenizer and template in metadata.
namespace tessera::golden {
namespace {

namespace fs = std::filesystem;
using base::Json;

const std::string kGemma = std::string(TESSERA_TEST_DATA) + "/moe/diffusion_gemma_text/model/";

/// A model as a folder with a tokenizer, and as a file.
struct Pair {
  Scratch scratch;
  std::string folder, file = scratch / "model.gguf";

  void write(const std::string& type, const load::Metadata& keys,
             const std::vector<float>& factors = {}) const {
    const auto add = [&](load::GgufImage& image) {
      load::write_keys(keys, image);
      if (!factors.empty()) image.floats("rope_freqs.weight", {std::ssize(factors)}, factors);
    };
    std::ofstream(file, std::ios::binary)
        << load::gguf_of(load::with_single_experts(load::open_component(folder)),
                         load::name_table_of(type), nullptr, false, add);
  }
};

load::Metadata gemma_keys() {
  load::Metadata keys =
      load::keys_of_config("diffusion-gemma", base::read_json(kGemma + "config.json"));
  load::add_tokenizer(base::read_json(kGemma + "tokenizer.json"), "gemma4", 512, keys);
  keys["tokenizer.chat_template"] = base::read_file(kGemma + "chat_template.jinja", 1 << 20);
  keys["tokenizer.ggml.bos_token_id"] = 2;
  keys["tokenizer.ggml.eos_token_id"] = 1;
  keys["tokenizer.ggml.unknown_token_id"] = 3;
  return keys;
}

CompleteResult answer(const std::string& model, const CompleteRequest& request,
                      const char* plan = "") {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan(plan);
  return Model::open(model, options).complete(request);
}

// Compares answers to prompts, to plain texts and in a chat, on one rank and on two.
void check(const Pair& pair) {
  CompleteRequest prompt;
  prompt.prompts = {"the cat", "a"};
  prompt.max_tokens = 16;
  prompt.seed = 4;
  CompleteRequest raw = prompt, chat = prompt;
  raw.raw = true;
  chat.prompts.clear();
  chat.chat = R"([{"role": "user", "content": "the cat"}])";
  for (const CompleteRequest& request : {prompt, raw, chat}) {
    const CompleteResult want = answer(pair.folder, request);
    for (const char* plan : {"", "expert=2"}) {
      const CompleteResult got = answer(pair.file, request, plan);
      ASSERT_EQ(got.completions.size(), want.completions.size());
      for (size_t i = 0; i < want.completions.size(); ++i) {
        EXPECT_EQ(got.completions[i].ids, want.completions[i].ids);
        EXPECT_EQ(got.completions[i].text, want.completions[i].text);
      }
    }
  }
  const auto weights = [](const std::string& model) {
    return Model::open(model, golden::options(Precision::bf16)).inspect().memory.at("weights");
  };
  EXPECT_EQ(weights(pair.file), weights(pair.folder));
}

TEST(GgufAloneGolden, LladaMoe) {
  const TextModel model("llada_moe");
  Pair pair;
  pair.folder = model.path();
  pair.write("LLaDAMoEModelLM", load::keys_of_folder(pair.folder, "llada-moe"));
  check(pair);
}
TEST(GgufAloneGolden, Llada2) {
  const TextModel model("llada2");
  Pair pair;
  pair.folder = model.path();
  pair.write("llada2_moe", load::keys_of_folder(pair.folder, "llada2"));
  check(pair);
}
TEST(GgufAloneGolden, DiffusionGemma) {
  const Json config = base::read_json(kGemma + "config.json");
  const CanvasModel model(config, 3);
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"})
    fs::copy_file(kGemma + name, model.path(name));
  Pair pair;
  pair.folder = model.path();
  pair.write("diffusion_gemma", gemma_keys(), load::rope_factors(config));
  check(pair);
}

TEST(GgufAloneGolden, WithoutTokenizerIdsAreAnswered) {
  Pair pair;
  pair.folder = std::string(TESSERA_TEST_DATA) + "/moe/llada_moe/model";
  pair.write("LLaDAMoEModelLM",
             load::keys_of_config("llada-moe", base::read_json(pair.folder + "/config.json")));
  CompleteRequest request;
  request.prompt_ids = {{3, 9, 1}};
  request.max_tokens = 8;
  EXPECT_EQ(answer(pair.file, request).completions[0].ids,
            answer(pair.folder, request).completions[0].ids);
  request.prompt_ids.clear();
  request.prompts = {"a"};
  EXPECT_NE(error_of([&] { answer(pair.file, request); }).find("has no tokenizer"),
            std::string::npos);
}

TEST(GgufAloneGolden, UsesThatNeedAFolderAreRefused) {
  Pair pair;
  pair.folder = std::string(TESSERA_TEST_DATA) + "/moe/llada_moe/model";
  pair.write("LLaDAMoEModelLM",
             load::keys_of_config("llada-moe", base::read_json(pair.folder + "/config.json")));
  EXPECT_NE(error_of([&] {
              (void)Model::open(pair.file, golden::options(Precision::f32), {},
                                {.transformer = pair.file});
            }).find("is a whole model"),
            std::string::npos);
  QuantiseRequest request;
  request.output = pair.scratch / "small";
  EXPECT_NE(error_of([&] {
              Model::open(pair.file, golden::options(Precision::f32)).quantise(request);
            }).find("quantised from its folder"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::golden
