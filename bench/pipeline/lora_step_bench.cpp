// A forward pass of a dense family without and with a LoRA on every matrix, in turn in a single
// run:
// on a busy machine only ratios within a round are meaningful.
//   lora_step_bench [threads] [family:tokens] [rounds] [rank] [bf16|int8|int4]
// JSON lines: a line for each round, then the medians. "cost": the share of a step added by the
// LoRA.
#include <map>

#include "bench.h"
#include "models/one_step.h"
#include "nn/low_rank_weights.h"
#include "pipeline/ruled_weights.h"

using namespace tessera;
using bench::DType;
using bench::Tensor;
using Bits = bench::RuledWeights::Bits;

namespace {

/// Weights in a form, each with a LoRA pair of a rank; rank 0: none.
class LoraWeights final : public bench::RuledWeights {
 public:
  LoraWeights(Bits bits, int64_t rank) : RuledWeights(bits), rank_(rank) {}
  nn::FetchedWeight fetch(const nn::WeightRequest& request) const override {
    nn::FetchedWeight fetched = RuledWeights::fetch(request);
    if (request.form != Form::matrix || rank_ == 0) return fetched;
    const int64_t n = request.shape[0], k = request.shape[1];
    nn::WeightChange pair;
    pair.down = bench::random_tensor({rank_, k}, DType::f32, 1, 0.01f);
    pair.up = bench::random_tensor({n, rank_}, DType::f32, 2, 0.01f);
    const auto changes =
        std::make_shared<nn::WeightChanges>(nn::WeightChanges{{request.name, {pair}}});
    return {.packed =
                nn::LowRanks(changes, tensor::Device::cpu).beside(fetched.packed, request, *this)};
  }

 private:
  int64_t rank_;
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Place place(argc, argv);
  const bench::Threads threads(argc, argv);
  const std::string shape = argc > 2 ? argv[2] : "flux:1024";
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 7;
  const int64_t rank = argc > 4 ? std::atol(argv[4]) : 16;
  const std::string form = argc > 5 ? argv[5] : "bf16";
  const Bits bits = form == "int8" ? Bits::int8 : form == "int4" ? Bits::int4 : Bits::none;
  const bench::FamilyShape of(shape, "");
  const std::string& name = of.name;
  const int64_t tokens = of.tokens;
  const bench::Family& family = bench::family_of(name);
  const bench::OneStep plain(family, name, tokens, LoraWeights(bits, 0), place);
  const bench::OneStep adapted(family, name, tokens, LoraWeights(bits, rank), place);
  const double change = bench::relative_error(adapted.run(), plain.run());
  std::vector<double> costs;
  for (int round = 0; round < rounds; ++round) {
    const double before = kernels::best_seconds([&] { plain.run(); }, 1);
    const double with = kernels::best_seconds([&] { adapted.run(); }, 1);
    costs.push_back(with / before - 1);
    std::printf(
        "{\"bench\":\"lora step\",\"shape\":\"%s\",\"form\":\"%s\",\"rank\":%ld,\"plain_ms\":%.4g,"
        "\"lora_ms\":%.4g,\"cost\":%.4f}\n",
        shape.c_str(), form.c_str(), static_cast<long>(rank), 1e3 * before, 1e3 * with,
        costs.back());
    std::fflush(stdout);
  }
  std::printf(
      "{\"bench\":\"lora step median\",\"shape\":\"%s\",\"form\":\"%s\",\"rank\":%ld,\"rounds\":%d,"
      "\"change\":%.4g,\"cost\":%.4f}\n",
      shape.c_str(), form.c_str(), static_cast<long>(rank), rounds, change, bench::median(costs));
}
