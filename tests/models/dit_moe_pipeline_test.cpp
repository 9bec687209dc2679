#include "models/dit_moe_pipeline.h"

#include <gtest/gtest.h>

#include "models/published_models.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

base::Json config_of(const std::string& name) {
  return published_model(name)->description.at("parts").at("transformer").at("config");
}
base::Json small() { return config_of("dit_moe_s"); }

std::string refusal(const base::Json& config) {
  try {
    parse_dit_moe_config(config, "config.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    return e.what();
  }
  return "was accepted";
}

TEST(DitMoePipeline, ReadsThePublishedSizes) {
  for (const char* size : {"s", "b", "l", "xl", "g"})
    EXPECT_EQ(refusal(config_of(std::string("dit_moe_") + size)), "was accepted") << size;
  const DitMoeConfig xl = parse_dit_moe_config(config_of("dit_moe_xl"), "xl");
  EXPECT_EQ(xl.head_dim(), 72);
  EXPECT_EQ(xl.expert_width(), 4608);
}

TEST(DitMoePipeline, NamesTheKeyThatIsWrong) {
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, base::Json>>{{"hidden_size", -1},
                                                       {"hidden_size", "wide"},
                                                       {"depth", 0},
                                                       {"depth", 1e300},
                                                       {"num_heads", 18446744073709551615ull},
                                                       {"mlp_ratio", nullptr},
                                                       {"attention", "flashy"},
                                                       {"num_experts_per_tok", 9},
                                                       {"qk_norm", 1},
                                                       {"patch_size", 3}}) {
    base::Json config = small();
    config[key] = value;
    EXPECT_NE(refusal(config).find(key == "patch_size" ? "patch" : key), std::string::npos)
        << refusal(config);
  }
  base::Json config = small();
  config.erase("num_classes");
  EXPECT_NE(refusal(config).find("'num_classes' is missing"), std::string::npos);
  config = small();
  config["num_heads"] = 7;
  EXPECT_NE(refusal(config).find("head width"), std::string::npos);
}

TEST(DitMoePipeline, RowsOfBothBranches) {
  const base::Json config = small();
  const auto spec = dit_moe_pipeline({config, "config.json"});
  const auto y = spec.conditioning({3, 999}, true).tensors.at("y").to_ints();
  EXPECT_EQ(y, (std::vector<int64_t>{3, 999, 1000, 1000}));
  EXPECT_THROW(spec.conditioning({1000}, false), Error);
  EXPECT_THROW(spec.layout(33, 32), Error);
  EXPECT_EQ(spec.layout(0, 0).tokens(), 256);
  EXPECT_EQ(spec.scheduler, "ddpm");
  EXPECT_EQ(spec.guided_channels_of.at("ddpm"), 3);
}

}  // namespace
}  // namespace tessera::models
