// The golden layers, on ranks polled by a single thread.
#include <cmath>

#include "base/json.h"
#include "fused/polled_ranks.h"
#include "load/safetensors.h"
#include "models/moe_layer.h"
#include "models/named_noise.h"
#include "nn/moe/capacity_policy.h"
#include "nn/packing_weights.h"
#include "ops/elementwise.h"
#include "tessera/words.h"
#include "test_paths.h"

namespace tessera::fused {
namespace {

class FileWeights final : public nn::PackingWeights {
 public:
  explicit FileWeights(const std::string& path) : file_(path) {}
  bool has(const std::string& name) const override { return file_.has(name); }
  nn::Tensor stored(const std::string& name, const tensor::Shape&) const override {
    return file_.get(name);
  }

 private:
  load::SafetensorsFile file_;
};

double max_error(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(double(a[i]) - double(b[i]));
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    largest = std::max(largest, std::abs(double(b[i])));
  }
  return worst / largest;
}

// A random split of tokens, so some ranks have none; random owners of experts.
PolledCase random_case(int64_t tokens, int experts, uint32_t seed) {
  std::mt19937 random(seed);
  PolledCase c;
  c.tokens.resize(1 + seed % 5);
  for (int64_t left = tokens; left > 0;) {
    const int64_t some = 1 + int64_t(random()) % left;
    c.tokens[random() % c.tokens.size()] += some;
    left -= some;
  }
  for (int e = 0; e < experts; ++e) c.owner.push_back(int(random() % c.tokens.size()));
  c.manner = {1 + int(random() % 4), 1 + int(random() % 2), 1 + int(random() % 2),
              1 + int(random() % 3), 1 + int64_t(random() % 70)};
  c.tile = 1 + int64_t(random() % 40);
  c.order = Order(seed % 3);
  c.seed = seed;
  return c;
}

class FusedGolden : public testing::TestWithParam<const char*> {};

TEST_P(FusedGolden, EveryRunIsTheReferencesAndTheBulkLayers) {
  const std::string folder = std::string(TESSERA_TEST_DATA "/moe/") + GetParam();
  const load::SafetensorsFile io(folder + "/io.safetensors");
  const base::Json golden = base::read_json(folder + "/case.json");
  const base::Json config = base::read_json(folder + "/model/config.json");
  const FileWeights weights(folder + "/model/model.safetensors");
  const models::MoeLayerConfig sizes = models::moe_layer_of({config, "config.json"});
  uint32_t runs = 0, dropped = 0;
  for (const auto& one : golden.at("runs")) {
    const std::string name = one.at("name");
    MoeLayerForm form{.gate = one.at("gate"), .top_k = one.at("k")};
    form.experts = choice_of<ExpertActivation>(one.at("experts").get<std::string>(), "experts");
    form.renormalise = one.at("renormalise");
    const models::MoeLayer layer(sizes, form, weights, {}, nn::DType::f32);
    const nn::Tensor x = io.get(one.at("x"));
    PolledCase c = random_case(x.size(0), int(sizes.experts), ++runs);
    auto policy = std::shared_ptr<const nn::ExpertPolicy>(std::make_shared<nn::VanillaPolicy>());
    if (!one.at("capacity").is_null()) {
      c.capacity = one.at("capacity").get<int64_t>();
      policy = std::make_shared<nn::CapacityPolicy>(policy, *c.capacity);
    }
    const LayerInput input{x, &layer.router, policy.get(), &layer.experts};
    PolledRanks ranks(c, form.top_k, x.size(1) * 4);
    const std::vector<float> made = ranks.run({input})[0];
    EXPECT_LT(max_error(made, io.get(name + ".y").to_floats()), 1e-4) << name;
    expect_same(made, bulk(input), name);
    EXPECT_EQ(ranks.payload_bytes(), crossing_bytes(c, input)) << name;
    if (!c.capacity) {
      const std::string gate = form.gate.substr(5, form.gate.size() - 12);
      const auto counts = io.get("route." + std::to_string(x.size(0)) + "." + gate + ".k" +
                                 std::to_string(form.top_k) + ".counts")
                              .to_ints();
      EXPECT_EQ(ranks.kept(), std::vector<int32_t>(counts.begin(), counts.end())) << name;
      continue;
    }
    EXPECT_EQ(ranks.kept(), one.at("kept_counts").get<std::vector<int32_t>>()) << name;
    dropped += one.at("dropped_slots").get<uint32_t>();
  }
  EXPECT_GT(runs, 100u);
  EXPECT_GT(dropped, 100u);
}

INSTANTIATE_TEST_SUITE_P(Cases, FusedGolden,
                         testing::Values("moe_layer_e4", "moe_layer_e8", "moe_layer_e64"));

// Kernels read rows in whole vectors: bytes after a row of odd length are poisoned here, or the
// padding of a tile.
TEST(OddSizes, NoRowReadsItsNeighbour) {
  for (const nn::DType dtype : {nn::DType::f32, nn::DType::bf16})
    for (const auto& [hidden, inner] : {std::pair{33, 17}, {7, 5}, {70, 50}})
      for (const ExpertActivation form : {ExpertActivation::swiglu, ExpertActivation::gelu}) {
        const models::MoeLayer layer({hidden, inner, 4}, {.gate = "g", .top_k = 2, .experts = form},
                                     models::NamedNoise(), {}, dtype);
        const nn::VanillaPolicy vanilla;
        for (uint32_t seed = 0; seed < 6; ++seed) {
          const PolledCase c = random_case(23, 4, seed);
          const LayerInput input{ops::cast(models::NamedNoise().get("x", {23, hidden}), dtype),
                                 &layer.router, &vanilla, &layer.experts};
          PolledRanks ranks(c, 2, hidden * size_of(dtype));
          expect_same(ranks.run({input})[0], bulk(input), std::to_string(hidden));
        }
      }
}

}  // namespace
}  // namespace tessera::fused
