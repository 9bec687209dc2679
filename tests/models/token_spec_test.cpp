#include <gtest/gtest.h>

#include "models/named_noise.h"
#include "models/registry.h"
#include "models/token_configs.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

TEST(TokenSpec, IsFoundByArchitecture) {
  EXPECT_FALSE(language_model_of({llada_moe_config(), "c"}).block_causal);
  base::Json config = llada2_config();
  config.erase("architectures");  // then by model_type
  EXPECT_TRUE(language_model_of({config, "c"}).block_causal);
}

TEST(TokenSpec, BuildsBlocksOfTheLengthThatIsAskedFor) {
  const auto causal_block = [](const base::Json& config, int block) {
    const TokenSpec spec = language_model_of({config, "c"});
    const auto model = spec.make(NamedNoise(), spec.whole(), tensor::DType::f32, block);
    return model->geometry().attention.front().causal_block;
  };
  EXPECT_EQ(causal_block(llada2_config(), 8), 8);
  EXPECT_EQ(causal_block(llada2_config(), 0), 32) << "the model's own";
  EXPECT_EQ(causal_block(llada_moe_config(), 8), 0) << "bidirectional";
}

TEST(TokenSpec, NamesAnUnknownModelAndTheKnownOnes) {
  try {
    language_model_of({{{"architectures", {"LlamaForCausalLM"}}}, "x/config.json"});
    FAIL() << "a Llama was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    for (const char* part : {"x/config.json", "LlamaForCausalLM", "LLaDA2MoeModelLM"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace tessera::models
