#include "engine/golden.h"

namespace tessera {
namespace {

TEST(Model, RefusesAPlanOfManyRanks) {
  RunOptions run = golden::options(Precision::f32);
  run.plan.cfg = 2;
  EXPECT_THROW(Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", run), Error);
}

TEST(Model, FindsShippedModelsByName) {
  EXPECT_NO_THROW(Model::open("shapes", golden::options(Precision::bf16)));
}

}  // namespace
}  // namespace tessera
