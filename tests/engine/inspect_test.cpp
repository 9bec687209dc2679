#include "golden.h"

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

TEST(Inspect, RefusesRunsThatCannotBe) {
  const RunOptions run = golden::options(Precision::bf16);
  for (const auto& [count, width] : {std::pair<int, int64_t>{0, 256}, {1, -8}, {1, 100}}) {
    GenerateRequest request;
    request.count = count;
    request.width = width;
    EXPECT_THROW(inspect_by_name("dit_moe_s", run, request), Error) << count << ' ' << width;
  }
}

TEST(Inspect, ReadsAFolder) {
  const Model model =
      Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", golden::options(Precision::f32));
  const auto found = model.inspect();
  ASSERT_FALSE(found.components.empty());
  EXPECT_EQ(found.components[0].facts.at("depth"), "3");
  EXPECT_GT(found.components[0].parameters, 1000);
}

}  // namespace
}  // namespace tessera
