#include "diffusion/plan_text.h"

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "runtime/resolve_model.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using golden::Scratch;
using tensor::Tensor;

const std::string kVideo = TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model";

GenerateRequest request(const std::string& prompt) {
  GenerateRequest q;
  q.prompts = {prompt};
  q.width = q.height = 32;
  q.frames = 1;
  q.steps = 1;
  q.guidance = 1;
  return q;
}

ErrorCode code = ErrorCode::usage;
std::string refusal(const std::string& model, const GenerateRequest& q) {
  try {
    Model::open(model, golden::options(Precision::f32)).generate(q);
  } catch (const Error& e) {
    code = e.code();
    return e.what();
  }
  return "nothing was refused";
}

TEST(PlanText, SaysWhatAnEncoderDoesNotSee) {
  const Model model =
      Model::open(runtime::resolve_model("scenes"), golden::options(Precision::f32));
  const auto notes = [&](const std::vector<std::string>& prompts) {
    GenerateRequest q;
    q.prompts = prompts;
    q.steps = 1;
    q.guidance = 1;
    q.decode = false;
    std::vector<std::string> said;
    RunControl control;
    control.on_note = [&](const std::string& note) { said.push_back(note); };
    model.generate(q, control);
    return said;
  };
  EXPECT_TRUE(notes({"a red circle above a black cross"}).empty());
  std::string longer;
  for (int i = 0; i < 18; ++i) longer += "red ";
  const auto said = notes({"a red circle", longer + "black cross", longer});
  ASSERT_FALSE(said.empty());
  EXPECT_NE(said[0].find("text_encoder reads "), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("red black cross' (and 1 more prompts are longer)"), std::string::npos)
      << said[0];
}

TEST(PlanText, TextsAreAsLongAsTheirTokenizerSays) {
  const Scratch scratch;
  const fs::path model = scratch / "model";
  fs::copy(runtime::resolve_model("scenes"), model, fs::copy_options::recursive);
  const auto longest = [&](int tokens) {
    for (const char* tokenizer : {"tokenizer", "tokenizer_2"}) {
      const std::string file = model / tokenizer / "tokenizer_config.json";
      base::Json config = base::read_json(file);
      config["model_max_length"] = tokens;
      std::ofstream(file) << config.dump();
    }
    GenerateRequest q = request("a red circle");
    q.frames = 0;
    return refusal(model, q);
  };
  EXPECT_EQ(longest(5), "nothing was refused");
  EXPECT_NE(longest(99).find("99 tokens of text: the text_encoder"), std::string::npos);
}

TEST(PlanText, MissingAndBrokenPartsAreNamed) {
  const Scratch scratch;
  const fs::path model = scratch / "model";
  fs::copy(kVideo, model, fs::copy_options::recursive);
  const auto write = [&](const std::string& file, const std::string& text) {
    std::ofstream(model / file) << text;
  };
  write("tokenizer/spiece.model", "no model");
  EXPECT_NE(refusal(model, request("x")).find("spiece.model"), std::string::npos);
  EXPECT_EQ(code, ErrorCode::model);
  fs::remove(model / "tokenizer/spiece.model");
  EXPECT_NE(refusal(model, request("x")).find("no tokenizer"), std::string::npos);
  EXPECT_EQ(code, ErrorCode::model);
  GenerateRequest tokens = request("x");
  tokens.text_tokens = 7;
  EXPECT_NE(refusal(kVideo, tokens).find("one length"), std::string::npos);
  GenerateRequest image = request("x");
  image.frames = 0;
  EXPECT_NE(
      refusal(TESSERA_TEST_DATA "/diffusers/pixart_alpha/model", image).find("`embeddings` FILE"),
      std::string::npos);
}

}  // namespace
}  // namespace tessera
