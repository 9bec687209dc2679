#include "runtime/check_quantised.h"

#include <gtest/gtest.h>

#include "test_paths.h"
#include "whole/golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

std::string refusal(const std::string& model, Precision precision, const std::string& rules = "") {
  RunOptions run = golden::options(precision);
  run.quantise_rules = rules;
  return golden::error_of(
      [&] { (void)Model::open(std::string(TESSERA_MODELS_DIR "/") + model, run); });
}

TEST(CheckQuantised, OptionsWithoutEffectAreNamed) {
  struct Case {
    const char* model;
    Precision precision;
    const char *rules, *named;
  };
  for (const Case& c : {Case{"scenes/vae", Precision::int8, "", "`dtype` int8"},
                        {"scenes", Precision::bf16, "nothing.*=int8", "'nothing.*'"},
                        {"scenes", Precision::bf16, "heads=int8", "'heads'"},
                        {"scenes", Precision::f32, "attn=int8", "`quantise_rules`"},
                        {"tasks-b", Precision::int4, "", "`dtype` int4"},
                        {"tasks-b", Precision::bf16, "attn=int8", "`quantise_rules`"},
                        {"tasks-b", Precision::bf16, "scores=int8", "`quantise_rules`"},
                        {"tasks-b", Precision::bf16, "vae=int8", "`quantise_rules`"},
                        {"scenes/vae", Precision::bf16, "scores=int8", "`quantise_rules`"},
                        {"scenes/transformer", Precision::bf16, "vae=int8", "no VAE"}})
    EXPECT_NE(refusal(c.model, c.precision, c.rules).find(c.named), std::string::npos)
        << c.model << " " << c.rules;
}

TEST(CheckQuantised, AQuantisedFolderKeepsItsForms) {
  const golden::Scratch scratch;
  QuantiseRequest request{.output = scratch / "q"};
  request.dtype = Precision::int8;
  (void)Model::open(TESSERA_MODELS_DIR "/scenes", golden::options(Precision::bf16))
      .quantise(request);
  const auto said = [&](Precision precision, const std::string& rules) {
    RunOptions run = golden::options(precision);
    run.quantise_rules = rules;
    return golden::error_of([&] { (void)Model::open(request.output, run); });
  };
  EXPECT_EQ(said(Precision::int8, ""), "");
  EXPECT_EQ(said(Precision::bf16, "attn=int8"), "");
  for (const auto& [precision, rules] : {std::pair{Precision::bf16, "mlp=int4"},
                                         {Precision::bf16, "attn=bf16"},
                                         {Precision::int4, ""}})
    EXPECT_NE(said(precision, rules).find("stay in the form that its files hold"),
              std::string::npos)
        << rules;
}

TEST(CheckQuantised, AVaeAloneTakesItsRule) {
  EXPECT_EQ(golden::error_of([] {
              RunOptions run = golden::options(Precision::bf16);
              run.quantise_rules = "vae=int8";
              (void)Model::open(TESSERA_MODELS_DIR "/scenes/vae", run);
            }),
            "");
}

}  // namespace
}  // namespace tessera
