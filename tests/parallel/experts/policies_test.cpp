// Every policy on every backend, on one to four ranks with tokens of the same rows.
#include <gtest/gtest.h>

#include <cmath>

#include "comm/threads/launch.h"
#include "nn/moe/capacity_policy.h"
#include "nn/moe/expert_choice.h"
#include "nn/moe/selected_experts.h"
#include "nn/random_bank.h"
#include "ops/elementwise.h"
#include "parallel/experts/fused_carrier.h"
#include "parallel/experts/fused_experts.h"
#include "parallel/experts/scheduled.h"
#include "parallel/sequence/group_peers.h"
#include "parallel/tensor/narrow_experts.h"
#include "parallel/tensor/ordered_reduce.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using namespace nn::random_bank;

constexpr int kExperts = 7, kSites = 2, kSteps = 5, kTokens = 11;
const nn::Segments kBody{{0, {0, 6}}, {2, {3, 4}}, {5, {0, 4}}};

const char* const kPolicies[] = {"vanilla",
                                 "topk:2",
                                 "des-seq:1",
                                 "des-vote:0.3",
                                 "des-max:0.5",
                                 "des-vote:0.3,scope=batch",
                                 "des-norm4:0.5",
                                 "des-peak:0.2",
                                 "naee:0.4",
                                 "mc:0.4,0.25,0.25",
                                 "expert-choice",
                                 "capacity",
                                 "capacity of des-vote:0.3"};

std::shared_ptr<const nn::ExpertPolicy> policy_of(const std::string& text) {
  if (text == "expert-choice") return std::make_shared<nn::ExpertChoice>();
  const std::string limited = "capacity of ";
  if (text == "capacity") return std::make_shared<nn::CapacityPolicy>(policy_of("vanilla"), 2);
  if (text.starts_with(limited))
    return std::make_shared<nn::CapacityPolicy>(policy_of(text.substr(limited.size())), 3);
  auto policy = std::make_shared<nn::SelectionPolicy>(nn::parse_selection(text));
  policy->restrict_to({{0, nn::kAllTokens}, {5, nn::kAllTokens}});
  return policy;
}

std::unique_ptr<nn::ExpertBackend> scheduled(const std::string& schedule, comm::Communicator* world,
                                             const std::vector<int>& owner) {
  if (schedule == "moe=fused")
    return std::make_unique<FusedExperts>(*world, FusedExperts::Size{owner, kTokens, kExperts});
  const Plan plan = parse_plan(schedule);
  std::unique_ptr<ExpertCarrier> carrier;
  if (plan.moe == MoeForm::fused)
    carrier = std::make_unique<FusedCarrier>(*world, FusedSize{owner, kTokens, kExperts});
  else
    carrier = std::make_unique<ExpertExchange>(world, owner);
  return std::make_unique<ScheduledExchange>(
      plan, Timetable(plan, kSites, kSteps), std::move(carrier),
      ScheduleHooks{[](int sequence, int64_t id) { return uint32_t(sequence + id); }, {}});
}

// The tokens [begin, end) of the packed order.
nn::Segments part_of(nn::Range run) {
  nn::Segments part;
  int64_t at = 0;
  for (const nn::Segment& s : kBody) {
    const nn::Range held{std::max(run.begin, at), std::min(run.end, at + s.ids.size())};
    if (held.size() > 0)
      part.push_back({s.sequence, {held.begin - at + s.ids.begin, held.end - at + s.ids.begin}});
    at += s.ids.size();
  }
  return part;
}

using Made = std::vector<std::vector<float>>;  // call by call
struct Used {
  std::vector<std::vector<int64_t>> uses;
  int64_t read = 0;
  bool operator==(const Used&) const = default;
};

// All steps of a rank with the tokens of `run`.
Made steps_of(nn::MoeLayers& layers, nn::Range run, nn::SequencePeers* peers, DType dtype,
              const std::vector<bool>& held, Used* used = nullptr) {
  nn::SequenceUsage usage;
  if (used) layers.log().watch([&](const nn::MoeWork& work) { usage.see(work); });
  Made made;
  for (int s = 0; s < kSteps; ++s) {
    layers.begin_step({s, kSteps, s == 0, s + 1 == kSteps});
    for (int site = 0; site < kSites; ++site) {
      const nn::TokenView view{-1, {0, 2, 5}, {}, part_of(run), {}, peers};
      const Tensor x = ops::cast(normal({kTokens, 32}, uint32_t(3 + 10 * s + site)), dtype);
      made.push_back(layers
                         .apply(site, view, x.slice(0, run.begin, run.end).contiguous(),
                                router(kExperts, 3, uint32_t(9 + site)),
                                bank(kExperts, uint32_t(1 + 500 * site), dtype, held))
                         .to_floats());
    }
  }
  layers.finish();
  if (!used) return made;
  for (const auto& use : usage.take())
    used->uses.push_back({use.site, use.sequence, use.tokens, use.distinct});
  used->read = usage.experts_read();
  return made;
}

Made alone(const std::string& policy, const std::string& schedule, DType dtype,
           Used* used = nullptr) {
  nn::MoeLayers layers(policy_of(policy),
                       schedule == "local"
                           ? std::make_unique<nn::LocalBackend>()
                           : scheduled(schedule, nullptr, std::vector<int>(kExperts)));
  return steps_of(layers, {0, kTokens}, nullptr, dtype, {}, used);
}

// The results of all ranks, joined in the order of a single rank.
Made together(const std::string& policy, const std::string& schedule, DType dtype, int ranks,
              Used* used = nullptr) {
  std::vector<Made> all{size_t(ranks)};
  std::vector<Used> uses{size_t(ranks)};
  comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
    const std::vector<int> owner = experts_in_blocks(kExperts, ranks);
    std::vector<bool> held;
    for (int o : owner) held.push_back(o == world.rank());
    const nn::Range run = nn::split({0, kTokens}, ranks, world.rank());
    GroupPeers peers(world);
    peers.hold(kBody, run.begin);
    nn::MoeLayers layers(policy_of(policy), scheduled(schedule, &world, owner));
    const auto at = size_t(world.rank());
    all[at] = steps_of(layers, run, &peers, dtype, held, used ? &uses[at] : nullptr);
  });
  Made whole = all[0];
  for (size_t r = 1; r < all.size(); ++r) {
    EXPECT_EQ(uses[r], uses[0]);
    for (size_t i = 0; i < whole.size(); ++i)
      whole[i].insert(whole[i].end(), all[r][i].begin(), all[r][i].end());
  }
  if (used) *used = uses[0];
  return whole;
}

TEST(Policies, SynchronousExchangesAreOneRankBitByBit) {
  for (const char* policy : kPolicies)
    for (DType dtype : {DType::f32, DType::bf16}) {
      Used expected;
      const Made one = alone(policy, "local", dtype, &expected);
      EXPECT_EQ(alone(policy, "", dtype), one) << policy;
      for (int ranks : {1, 2, 3, 4}) {
        Used used;
        EXPECT_EQ(together(policy, "", dtype, ranks, &used), one) << policy << " on " << ranks;
        EXPECT_EQ(used, expected) << policy << " on " << ranks;
        Used fused;
        EXPECT_EQ(together(policy, "moe=fused", dtype, ranks, &fused), one)
            << policy << " fused on " << ranks;
        EXPECT_EQ(fused, expected) << policy << " fused on " << ranks;
      }
    }
}

TEST(Policies, StaleExchangesAreTheirScheduleOnOneRankBitByBit) {
  for (const char* policy : kPolicies) {
    const Made fresh = alone(policy, "local", DType::f32);
    for (const char* schedule :
         {"schedule=displaced", "schedule=interweaved", "schedule=interweaved,sync=0",
          "schedule=displaced,conditional=low", "conditional=random,stride=3"}) {
      const Made one = alone(policy, schedule, DType::f32);
      EXPECT_NE(one, fresh) << policy << ", " << schedule;
      for (int ranks : {1, 2, 3, 4})
        for (const char* form : {"", ",moe=fused"})
          EXPECT_EQ(together(policy, std::string(schedule) + form, DType::f32, ranks), one)
              << policy << ", " << schedule << form << " on " << ranks;
    }
    EXPECT_EQ(together(policy, "schedule=displaced,warmup=5", DType::f32, 3), fresh) << policy;
  }
}

// A budget belongs to a segment, so ranks that split a row would choose other rows.
TEST(Policies, AdaptiveSchedulesRunUnderEveryPolicy) {
  for (const char* policy : kPolicies) {
    EXPECT_EQ(alone(policy, "schedule=adaptive,budget=100", DType::f32),
              alone(policy, "local", DType::f32))
        << policy;
    EXPECT_NE(alone(policy, "schedule=adaptive,budget=0", DType::f32),
              alone(policy, "local", DType::f32))
        << policy;
    for (const char* form : {"", ",moe=fused"})
      EXPECT_EQ(together(policy, std::string("schedule=adaptive,budget=0") + form, DType::f32, 3),
                alone(policy, "schedule=adaptive,budget=0", DType::f32))
          << policy << form;
  }
}

TEST(Policies, NarrowExpertsSumToThoseOfOneRank) {
  const nn::TokenView view{-1, {0, 2, 5}, {}, kBody, {}};
  const Tensor x = normal({kTokens, 32}, 3);
  for (const char* policy : kPolicies) {
    nn::MoeLayers local(policy_of(policy), std::make_unique<nn::LocalBackend>());
    const auto want =
        local.apply(0, view, x, router(kExperts, 3, 9), slice_of_bank(kExperts, {0, 20}))
            .to_floats();
    for (int ranks : {1, 2, 3, 4}) {
      std::vector<std::vector<float>> all{size_t(ranks)};
      comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
        OrderedReduce reduce(world);
        nn::MoeLayers layers(policy_of(policy), std::make_unique<NarrowExperts>(reduce));
        const nn::Range inner = nn::split({0, 20}, ranks, world.rank());
        all[size_t(world.rank())] =
            layers.apply(0, view, x, router(kExperts, 3, 9), slice_of_bank(kExperts, inner))
                .to_floats();
      });
      double error = 0, length = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        error += std::pow(double(all[0][i]) - double(want[i]), 2);
        length += std::pow(double(want[i]), 2);
      }
      EXPECT_LT(std::sqrt(error / length), 1e-6) << policy << " on " << ranks;
      if (ranks == 1) {
        EXPECT_EQ(all[0], want) << policy;
      }
      for (const auto& one : all) EXPECT_EQ(one, all[0]) << policy;
    }
  }
}

}  // namespace
}  // namespace tessera::parallel
