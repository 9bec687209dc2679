// A MoE layer of LLaDA-MoE size (2048 x 1024, 64 experts, top 8) with and without a selection rule,
// in turn: medians, and the cost of the selection.
//   language_layer_bench [threads] [tokens] [rule] [bf16|i8|i4] [rounds]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>

#include "bench.h"
#include "nn/moe/expert_selection.h"
#include "nn/moe/moe_layers.h"
#include "nn/moe/selection_policy.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

constexpr int64_t kHidden = 2048, kInner = 1024;
constexpr int kExperts = 64, kSlots = 8;

nn::ExpertWeights bank_of(const std::string& form) {
  const float scale = 1 / std::sqrt(float(kHidden));
  const DType dtype = form == "bf16" ? DType::bf16 : DType::i8;
  ops::StoredMatrix up = bench::random_tensor({kInner, kHidden}, DType::bf16, 1, scale);
  ops::StoredMatrix down = bench::random_tensor({kHidden, kInner}, DType::bf16, 2, scale);
  if (form == "i4") {
    up = ops::quantise_groups(up.values);
    down = ops::quantise_groups(down.values);
  }
  auto routed = std::make_shared<std::vector<ops::Expert>>();
  for (int e = 0; e < kExperts; ++e)
    routed->push_back({ops::pack_paired_weight(up, up, dtype), ops::pack_weight(down, dtype)});
  return {std::move(routed), {}};
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Threads threads(argc, argv);
  const int64_t tokens = argc > 2 ? std::atol(argv[2]) : 64;
  const auto rule = nn::parse_selection(argc > 3 ? argv[3] : "des-vote:0.4");
  const std::string form = argc > 4 ? argv[4] : "bf16";
  const int rounds = argc > 5 ? std::atoi(argv[5]) : 7;
  const nn::ExpertWeights bank = bank_of(form);
  const nn::Router router{
      ops::pack_weight(bench::random_tensor({kExperts, kHidden}, DType::f32, 9, 0.02f), DType::f32),
      {.top_k = kSlots}};
  const Tensor x = bench::random_tensor({tokens, kHidden}, DType::bf16, 5);
  const nn::TokenView view{-1, {0}, {}, {{0, {0, tokens}}}, {tokens}};
  nn::MoeLayers vanilla;
  const auto policy = std::make_shared<nn::SelectionPolicy>(rule);
  policy->restrict_to({{0, nn::kAllTokens}});
  nn::MoeLayers restricted_layers(policy, std::make_unique<nn::LocalBackend>());
  std::vector<double> plain, shared, choice;
  const Tensor logits = router.logits(x);
  const std::vector<int32_t> group(static_cast<size_t>(tokens));
  for (int i = 0; i <= rounds; ++i) {
    const double a = kernels::best_seconds([&] { vanilla.apply(0, view, x, router, bank); }, 1);
    const double b =
        kernels::best_seconds([&] { restricted_layers.apply(0, view, x, router, bank); }, 1);
    const double c = kernels::best_seconds(
        [&] {
          nn::select_experts(logits, router.options, rule, {group, {}});
        },
        1);
    if (i == 0) continue;  // warm-up
    plain.push_back(a);
    shared.push_back(b);
    choice.push_back(c);
  }
  const int64_t vanilla_experts = vanilla.log().events()[0].distinct,
                few = restricted_layers.log().events()[0].distinct;
  const double expert_bytes =
      double(bank.routed->front().up->bytes() + bank.routed->front().down->bytes());
  const kernels::Limits limits = kernels::probe_limits();
  fmt::print(
      "{{\"bench\":\"language layer {}\",\"tokens\":{},\"threads\":{},\"rule\":\"{}\","
      "\"vanilla_ms\":{:.3f},\"rule_ms\":{:.3f},\"faster\":{:.3f},\"experts\":[{},{}],"
      "\"selection_ms\":{:.4f},\"selection_share\":{:.5f},\"vanilla_share_of_bandwidth\":{:.3f},"
      "\"probe_gbytes_per_s\":{:.2f}}}\n",
      form, tokens, tensor::thread_count(), nn::to_string(rule), bench::median(plain) * 1e3,
      bench::median(shared) * 1e3, bench::median(plain) / bench::median(shared), vanilla_experts,
      few, bench::median(choice) * 1e3, bench::median(choice) / bench::median(shared),
      double(vanilla_experts) * expert_bytes / bench::median(plain) / limits.read,
      limits.read / 1e9);
}
