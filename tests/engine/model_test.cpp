#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

TEST(Model, RefusesAPlanThatCannotRun) {
  RunOptions run = golden::options(Precision::f32);
  run.plan.data = 0;
  EXPECT_THROW(Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", run), Error);
}

TEST(Model, FindsShippedModelsByName) {
  EXPECT_NO_THROW(Model::open("shapes", golden::options(Precision::bf16)));
}

}  // namespace
}  // namespace tessera
