#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/json.h"
#include "test_paths.h"

namespace tessera::base {
namespace {

const Json& golden() {
  static const Json numbers = read_json(TESSERA_TEST_DATA "/torch_rng/numbers.json");
  return numbers;
}

class TorchNumbers : public testing::TestWithParam<const char*> {};

TEST_P(TorchNumbers, RandnOfEverySizeIsPyTorchs) {
  for (int size : {1, 2, 15, 16, 17, 23, 31, 32, 100}) {
    const std::string name = std::string("randn.") + GetParam() + "." + std::to_string(size);
    ASSERT_TRUE(golden().contains(name)) << name;
    std::vector<float> mine(static_cast<size_t>(size));
    TorchGenerator(std::stoull(GetParam())).randn(mine);
    for (size_t i = 0; i < mine.size(); ++i)
      EXPECT_NEAR(mine[i], golden()[name][i].get<float>(), 2e-6) << name << " at " << i;
  }
}

TEST_P(TorchNumbers, RandAndRandintAreExact) {
  std::vector<float> mine(100);
  TorchGenerator(std::stoull(GetParam())).rand(mine);
  EXPECT_EQ(mine, golden()[std::string("rand.") + GetParam() + ".100"].get<std::vector<float>>());
  TorchGenerator whole(std::stoull(GetParam()));
  for (int64_t expected : golden()[std::string("randint.") + GetParam()])
    EXPECT_EQ(whole.randint(1000), expected);
}

INSTANTIATE_TEST_SUITE_P(Seeds, TorchNumbers, testing::Values("0", "42", "1234567890123"));

TEST(Philox, IsNormalAndAFunctionOfSeedAndPlace) {
  std::vector<float> x(40000), again(40000), other(40000);
  Philox(7).randn(x);
  Philox(7).randn(again);
  Philox(8).randn(other);
  EXPECT_EQ(x, again);
  EXPECT_NE(x, other);
  double sum = 0, squares = 0;
  for (float v : x) sum += v, squares += double(v) * v;
  EXPECT_NEAR(sum / double(x.size()), 0, 0.02);
  EXPECT_NEAR(squares / double(x.size()), 1, 0.03);
}

}  // namespace
}  // namespace tessera::base
