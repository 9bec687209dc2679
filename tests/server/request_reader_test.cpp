#include "server/request_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/refusal.h"

namespace tessera::server {
namespace {

ModelFacts shapes() {
  ModelFacts facts;
  facts.name = "shapes";
  facts.classes = 32;
  facts.width = facts.height = 128;
  return facts;
}

ModelFacts language() {
  ModelFacts facts;
  facts.kind = Kind::text;
  return facts;
}

GenerateRequest image(const char* text) {
  return std::get<GenerateRequest>(read_request(parse_body(text), shapes(), {}));
}

// The parameter named by a request's refusal.
std::string refused(const char* text, const ModelFacts& facts = shapes()) {
  try {
    read_request(parse_body(text), facts, {});
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.status(), 400) << text;
    return refusal.param();
  }
  return "not refused";
}

TEST(RequestReader, ReadsAllOfAnImage) {
  const GenerateRequest q =
      image(R"({"classes": ["red circle", 3], "negative_prompt": "", "steps": 7,
    "guidance": 2.5, "width": 64, "height": 32, "count": 2, "seeds": [1, 2, 3, 18446744073709551615],
    "noise": "philox", "scheduler": "ddpm", "binning": true, "fit": true, "clean_caption": false,
    "cache": "fbcache,threshold=0.1"})");
  EXPECT_EQ(q.classes, (std::vector<std::string>{"red circle", "3"}));
  EXPECT_EQ(q.negative_prompt, "");
  EXPECT_EQ(q.steps, 7);
  EXPECT_EQ(q.guidance, 2.5F);
  EXPECT_EQ(q.width * 1000 + q.height, 64032);
  EXPECT_EQ(q.count, 2);
  EXPECT_EQ(q.seeds.back(), UINT64_MAX);
  EXPECT_EQ(q.noise, NoiseSource::philox);
  EXPECT_EQ(q.scheduler, SchedulerName::ddpm);
  EXPECT_TRUE(q.binning && q.fit);
  EXPECT_EQ(q.clean_caption, false);
  ASSERT_TRUE(q.cache.has_value());
  EXPECT_EQ(to_string(*q.cache), "fbcache,threshold=0.1,branches=together");
}

TEST(RequestReader, AdaptersAreFilesOfTheirFolder) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "tessera_request_reader_loras";
  std::filesystem::create_directories(folder / "inside");
  std::ofstream(folder / "ink.safetensors") << "x";
  Limits limits;
  limits.loras = folder.string();
  const auto read = [&](const std::string& loras) {
    const std::string text = R"({"classes": "3", "loras": )" + loras + "}";
    return std::get<GenerateRequest>(read_request(parse_body(text), shapes(), limits)).loras;
  };
  const std::vector<Lora> all = read(R"([{"name": "ink", "strength": -0.5},
                                         {"name": "ink.safetensors"}])");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].file, (folder / "ink.safetensors").string());
  EXPECT_EQ(all[0].strength, -0.5);
  EXPECT_EQ(all[1].file, all[0].file);
  EXPECT_EQ(all[1].strength, 1);
  const auto param = [&](const std::string& loras) -> std::string {
    try {
      read(loras);
    } catch (const Refusal& refusal) {
      EXPECT_EQ(refusal.status(), 400);
      return refusal.param();
    }
    return "not refused";
  };
  for (const char* name : {"", ".", "..", "../ink", "inside", "inside/../ink", "..\\\\ink",
                           "/etc/passwd", "none", "ink\\u0000", ".hidden"})
    EXPECT_EQ(param(R"([{"name": ")" + std::string(name) + R"("}])"), "loras[0].name") << name;
  EXPECT_EQ(param(R"([{"strength": 1}])"), "loras[0].name");
  EXPECT_EQ(param(R"([{"name": "ink", "strength": 5000}])"), "loras[0].strength");
  EXPECT_EQ(param(R"([{"name": "ink", "path": "/x"}])"), "loras[0].path");
  EXPECT_EQ(param(R"("ink")"), "loras");
  EXPECT_EQ(refused(R"({"classes": "3", "loras": [{"name": "ink"}]})"), "loras");
  std::filesystem::remove_all(folder);
}

TEST(RequestReader, WhatIsNullIsNotGiven) {
  const GenerateRequest q = image(R"({"classes": "red circle", "steps": null, "seeds": null})");
  EXPECT_FALSE(q.steps.has_value());
  EXPECT_TRUE(q.seeds.empty());
}

TEST(RequestReader, EachOfSeveralImagesHasASeed) {
  using Seeds = std::vector<uint64_t>;
  EXPECT_EQ(image(R"({"classes": ["a", "b"], "count": 2, "seed": 5})").seeds, (Seeds{5, 6, 7, 8}));
  EXPECT_EQ(image(R"({"classes": ["a", "b"]})").seeds, (Seeds{0, 1}));
  EXPECT_EQ(image(R"({"classes": ["a"], "count": 2, "seed": 18446744073709551615})").seeds,
            (Seeds{UINT64_MAX, 0}));
  EXPECT_EQ(image(R"({"classes": ["a"], "seed": 5})").seeds, Seeds{});
}

TEST(RequestReader, LimitsAreOfAllImagesTogether) {
  EXPECT_EQ(refused(R"({"classes": ["a"], "width": 8192, "height": 8192})"), "not refused");
  EXPECT_EQ(refused(R"({"classes": ["a"], "width": 8192, "height": 8192, "count": 2})"), "width");
  EXPECT_EQ(refused(R"({"classes": ["a"], "width": 8192, "height": 8193})"), "width");
  EXPECT_EQ(refused(R"({"classes": ["a", "b"], "count": 33})"), "count");
}

TEST(RequestReader, NamesWhatIsWrong) {
  EXPECT_EQ(refused(R"({"classes": ["a"], "stepz": 3})"), "stepz");
  EXPECT_EQ(refused(R"({"classes": ["a"], "steps": 3.5})"), "steps");
  EXPECT_EQ(refused(R"({"classes": ["a"], "seed": -1})"), "seed");
  EXPECT_EQ(refused(R"({"classes": ["a"], "seed": 1, "seeds": [1]})"), "seeds");
  EXPECT_EQ(refused(R"({"classes": ["a"], "guidance": "strong"})"), "guidance");
  EXPECT_EQ(refused(R"({"classes": ["a"], "cache": "fbcache,threshold=nan"})"), "cache");
  EXPECT_EQ(refused(R"({"classes": ["a"], "cache": "block"})"), "cache");
  EXPECT_EQ(refused(R"({"classes": [1.5]})"), "classes");
  EXPECT_EQ(refused(R"({"classes": ["a\u0000b"]})"), "classes");
  EXPECT_EQ(refused(R"({"prompts": ["a", "b\u0000"]})"), "prompts");
  EXPECT_EQ(refused(R"({})"), "prompt");
}

TEST(RequestReader, NothingNamesAFile) {
  for (const char* name :
       {"embeddings", "initial_latents", "save_latents", "trace", "initial_tensors"})
    EXPECT_EQ(refused(("{\"classes\": [\"a\"], \"" + std::string(name) + "\": \"x\"}").c_str()),
              name);
}

TEST(RequestReader, ReadsAllOfAnAnswer) {
  const auto q = std::get<CompleteRequest>(
      read_request(parse_body(R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9,
      "threshold": 0.5, "cache": "dual", "stop": "x", "select": "des-vote:0.4", "temperature": 0.5,
      "n": 3, "top_k": 9, "top_p": 0.25, "repetition_penalty": 1.5, "logprobs": 0, "seed": 4, "block": 8, "stop_at_eos": "none"})"),
                   language(), {}));
  EXPECT_EQ(parse_body("{\"m\":" + q.chat + "}")["m"][0]["content"], "hi");
  EXPECT_EQ(q.max_tokens, 9);
  EXPECT_TRUE(q.decode.starts_with("threshold:0.5"));
  EXPECT_EQ(q.cache.kind, KvCache::dual);
  EXPECT_EQ(q.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(q.stop_at_eos, StopAtEos::none);
  EXPECT_EQ(refused(R"({"prompt": "x", "prompts": ["x"]})", language()), "prompt");
  EXPECT_EQ(q.n * 100 + q.top_k, 309);
  EXPECT_EQ(q.top_p + q.repetition_penalty, 1.75);
  EXPECT_EQ(q.logprobs, 0);
  EXPECT_EQ(refused(R"({"prompt": "x", "steps": 0})", language()), "steps");
  EXPECT_EQ(refused(R"({"prompt": "x", "n": 2})", language()), "n");
  EXPECT_EQ(refused(R"({"prompts": ["x", "y"], "n": 33, "temperature": 1})", language()), "n");
  EXPECT_EQ(refused(R"({"prompt": "x", "top_p": 0})", language()), "top_p");
  EXPECT_EQ(refused(R"({"prompt": "x", "logprobs": 21})", language()), "logprobs");
}

}  // namespace
}  // namespace tessera::server
