// A forward pass of a dense family in bf16, int8 and int4, also with scores in int8, and a product
// of the family's width, in turn in a single run: on a busy machine only ratios within a round are
// meaningful.
//   int8_step_bench [threads] [family:tokens] [rounds]
// JSON lines: a line for each round, then the medians. "unit" is the rate of the probed
// instructions.
#include <map>
#include <numeric>

#include "bench.h"
#include "models/one_step.h"
#include "pipeline/ruled_weights.h"

using namespace tessera;
using bench::DType;
using bench::RuledWeights;
using bench::Tensor;
using Bits = RuledWeights::Bits;

namespace {

constexpr std::array<Bits, 3> kForms{Bits::none, Bits::int8, Bits::int4};

double seconds_of(const std::function<void()>& f) { return kernels::best_seconds(f, 1); }

// Errors to bf16 of each form, and of those with scores in int8.
void print_errors(const std::string& shape, const std::vector<bench::OneStep>& steps) {
  const Tensor want = steps[0].run();
  for (const bool scores : {false, true})
    for (size_t i = scores ? 0 : 1; i < steps.size(); ++i)
      std::printf(
          "{\"bench\":\"int8 step "
          "error\",\"shape\":\"%s\",\"form\":\"%s%s\",\"l2_to_bf16\":%.5f}\n",
          shape.c_str(), name_of(kForms[i]), scores ? ", scores int8" : "",
          bench::relative_error(steps[i].run(scores), want));
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Place place(argc, argv);
  const bench::Threads threads(argc, argv);
  const std::string shape = argc > 2 ? argv[2] : "pixart:1024";
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  const bench::FamilyShape of(shape, "");
  const std::string& name = of.name;
  const int64_t tokens = of.tokens;
  const bench::Family& family = bench::family_of(name);
  std::vector<bench::OneStep> steps;
  for (const Bits bits : kForms)
    steps.emplace_back(family, name, tokens, RuledWeights(bits), place);
  print_errors(shape, steps);

  constexpr int64_t kRows = 1024, kN = 4608, kK = 1152;  // PixArt's MLP
  const Tensor w = bench::random_tensor({kN, kK}, DType::bf16, 1, 0.03f),
               x = bench::random_tensor({kRows, kK}, DType::bf16, 2);
  std::vector<ops::Weight> weights{ops::pack_weight(w, DType::bf16)};
  for (const bool int4 : {false, true})
    weights.push_back(ops::pack_weight(w, ops::WeightForm::of_rows(int4)));
  std::map<std::string, std::vector<double>> results;
  for (int round = 0; round < rounds; ++round) {
    std::array<double, 3> step{}, product{};
    std::array<double, 2> scored{};
    for (size_t i = 0; i < 3; ++i) step[i] = seconds_of([&] { steps[i].run(); });
    for (size_t i = 0; i < 2; ++i) scored[i] = seconds_of([&] { steps[i].run(true); });
    for (size_t i = 0; i < 3; ++i)
      product[i] = kernels::best_seconds([&] { ops::matmul(x, weights[i]); }, 3);
    const kernels::Limits unit = kernels::probe_units();
    const double work = 2.0 * kRows * kN * kK;
    const std::map<std::string, double> line{
        {"bf16_ms", 1e3 * step[0]},
        {"int8_ms", 1e3 * step[1]},
        {"int4_ms", 1e3 * step[2]},
        {"int8_gain", step[0] / step[1]},
        {"int4_gain", step[0] / step[2]},
        {"bf16_scores_gain", step[0] / scored[0]},
        {"int8_scores_gain", step[0] / scored[1]},
        {"product_int8_gain", product[0] / product[1]},
        {"product_int4_gain", product[0] / product[2]},
        {"product_bf16_share", work / product[0] / unit.product(true)},
        {"product_int8_share", unit.int8_dot > 0 ? work / product[1] / unit.int8_dot : 0},
        {"product_int4_share", unit.int8_dot > 0 ? work / product[2] / unit.int8_dot : 0}};
    std::printf("{\"bench\":\"int8 step\",\"shape\":\"%s\",\"round\":%d", shape.c_str(), round);
    for (const auto& [key, value] : line) {
      std::printf(",\"%s\":%.4g", key.c_str(), value);
      results[key].push_back(value);
    }
    std::printf("}\n");
    std::fflush(stdout);
  }
  std::printf("{\"bench\":\"int8 step median\",\"shape\":\"%s\",\"rounds\":%d", shape.c_str(),
              rounds);
  for (const auto& [key, values] : results)
    std::printf(",\"%s\":%.4g", key.c_str(), bench::median(values));
  std::printf("}\n");
}
