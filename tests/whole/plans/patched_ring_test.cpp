#include <gtest/gtest.h>

#include <cmath>

#include "whole/plans/every_network.h"

// ring=R with patches=M in every image and video network: equal to patches on a single rank within
// rounding, and bit-identical among all products with the same ring.
namespace tessera {
namespace {

constexpr int kStale = 4;  // steps

using Asked = Subject::Asked;

Asked asked(const std::string& plan, bool guided = true) {
  return {plan, guided, 0, sample::rectified_flow(kStale)};
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, length = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error += std::pow(double(a[i]) - double(b[i]), 2);
    length += std::pow(double(b[i]), 2);
  }
  return std::sqrt(error / length);
}

class PatchedRing : public testing::TestWithParam<size_t> {
 protected:
  Subject subject(DType dtype) const { return Subject(kNetworks[GetParam()], dtype, 6, 10); }
};
INSTANTIATE_TEST_SUITE_P(EveryNetwork, PatchedRing, testing::Range<size_t>(0, 6));

TEST_P(PatchedRing, IsPatchesOfOneRankWithinRounding) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    for (const char* patches : {"patches=2", "patches=8,warmup=2", "patches=3,cut=bands"}) {
      const auto one = run(asked(patches)).steps;
      const double stale = distance(one.back(), run(asked("")).steps.back());
      for (const char* ring : {"ring=2,", "ring=3,", "ring=7,", "ring=2,ulysses=3,"}) {
        const std::string plan = std::string(ring) + patches;
        const auto many = run(asked(plan)).steps;
        for (size_t s = 0; s < one.size(); ++s)
          EXPECT_LT(distance(many[s], one[s]), dtype == DType::f32 ? 1e-5 : 3e-2)
              << run.name << ", " << plan << ", step " << s;
        if (dtype == DType::bf16) continue;
        EXPECT_LT(distance(many.back(), one.back()), 0.1 * stale) << "stale alike: " << plan;
      }
    }
  }
}

TEST_P(PatchedRing, ProductsGiveTheBitsOfTheRing) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    const auto one = run(asked("ring=3,patches=3")).steps;
    for (const char* plan :
         {"ring=3,patches=3,ulysses=2", "pipefusion=2,ring=3,patches=3", "cfg=2,ring=3,patches=3",
          "data=2,ring=3,patches=3,order=ring+data", "pipefusion=2,ring=3,ulysses=2,patches=3",
          "cfg=2,pipefusion=2,ring=3,patches=3,order=ring+pipefusion",
          "data=2,cfg=2,ring=3,ulysses=2,patches=3"})
      EXPECT_EQ(run(asked(plan)).steps, one) << run.name << ", " << plan;
  }
  const Subject run = subject(DType::bf16);
  const auto bands = run(asked("ring=2,patches=3,cut=bands,warmup=2")).steps;
  EXPECT_EQ(run(asked("pipefusion=2,ring=2,ulysses=2,patches=3,cut=bands,warmup=2")).steps, bands)
      << run.name;
  EXPECT_EQ(run(asked("tensor=2,ring=2,pipefusion=2,patches=3")).steps,
            run(asked("tensor=2,ring=2,patches=3")).steps)
      << run.name;
}

/// The tokens of a rank's ring places at a site: keys, and queries.
struct Tokens {
  int64_t keys = 0, queries = 0;
};
Tokens tokens_of(const nn::AttentionSite& site, const nn::TokenView& view) {
  const int64_t text = nn::token_count(view.prefix), body = nn::token_count(view.body);
  return {body + (site.joint ? text : 0), body + (site.prefix_queries ? text : 0)};
}

// 2 t d b for each attention of a stage, for the t tokens of the rank's place in the ring.
TEST_P(PatchedRing, KeepsItsOwnKeysAndValuesAlone) {
  const Subject run = subject(DType::bf16);
  for (const char* text : {"ring=2,patches=2", "ring=3,pipefusion=2,patches=8",
                           "ring=2,ulysses=3,patches=3", "cfg=2,ring=7,patches=3"}) {
    const Plan plan = parse_plan(text);
    const auto kept = run(asked(text)).kept;
    const auto stages = parallel::blocks_of_stages(plan, run.geometry().blocks);
    const parallel::Partition partition(plan, run.workload(asked(text)));
    const comm::Mesh& mesh = partition.mesh();
    constexpr std::string_view kHeads[] = {"ulysses"};
    for (int r = 0; r < plan.world(); ++r) {
      const nn::Range mine = stages[static_cast<size_t>(mesh.coordinate(r, "pipefusion"))];
      const nn::TokenView place = partition.view(mesh.group(r, kHeads));
      int64_t expected = 0;
      for (const nn::AttentionSite& site : run.geometry().attention)
        if (site.block >= mine.begin && site.block < mine.end)
          expected +=
              2 * tokens_of(site, place).keys *
              nn::split({0, site.kv_heads}, plan.ulysses, mesh.coordinate(r, "ulysses")).size() *
              site.head_dim * 2;
      EXPECT_EQ(kept[static_cast<size_t>(r)], expected)
          << run.name << ", " << text << ", rank " << r;
    }
  }
}

// (R - 1) t d b of queries and 4 (p - t) (d + h) of answers an attention, whatever M is; messages
// as many as there are patches.
TEST_P(PatchedRing, SendsWhatItsFormulaSays) {
  const Subject run = subject(DType::bf16);
  const int ring = 3, warmup = 2;
  for (const int patches : {2, 5, 8}) {
    const std::string text = "ring=3,warmup=2,pipefusion=2,patches=" + std::to_string(patches);
    const Plan plan = parse_plan(text);
    const parallel::Partition partition(plan, run.workload(asked(text)));
    const auto stages = parallel::blocks_of_stages(plan, run.geometry().blocks);
    const auto ran = run(asked(text));
    const int64_t calls = warmup + (kStale - warmup) * patches;
    for (int r = 0; r < plan.world(); ++r) {
      const nn::Range mine =
          stages[static_cast<size_t>(partition.mesh().coordinate(r, "pipefusion"))];
      using Sent = std::pair<int64_t, int64_t>;  // messages, bytes
      std::map<std::pair<std::string, int>, Sent> expected, found;
      for (const nn::AttentionSite& site : run.geometry().attention) {
        if (site.block < mine.begin || site.block >= mine.end) continue;
        int64_t all = 0;
        constexpr std::string_view kRing[] = {"ring"};
        for (const int one : partition.mesh().group(r, kRing))
          all += tokens_of(site, partition.view(one)).queries;
        const int64_t asking = tokens_of(site, partition.view(r)).queries;
        const int64_t width = int64_t{site.heads} * site.head_dim;
        auto& queries = expected[{"ring queries", site.block}];
        queries.first += calls * (ring - 1);
        queries.second += kStale * (ring - 1) * asking * width * 2;
        auto& answers = expected[{"ring answers", site.block}];
        answers.first += calls * (ring - 1);
        answers.second += kStale * 4 * (all - asking) * (width + site.heads);
      }
      for (const auto& [key, entry] : ran.sent[static_cast<size_t>(r)].entries())
        if (key.first.starts_with("ring")) found[key] = {entry.messages, entry.bytes};
      EXPECT_EQ(found, expected) << run.name << ", " << text << ", rank " << r;
    }
  }
}

// Tokens are read as often, and as old, as on a single rank, whatever rank holds them.
TEST_P(PatchedRing, SaysHowOldTheKeysAreThatItReads) {
  const Subject run = subject(DType::f32);
  for (const char* patches : {"patches=3", "patches=8,warmup=2"}) {
    const auto one = run(asked(patches)).ages[0];
    std::vector<int64_t> sum(one.size());
    for (const auto& rank : run(asked("ring=5," + std::string(patches))).ages)
      for (size_t age = 0; age < rank.size(); ++age) sum.at(age) += rank[age];
    EXPECT_EQ(sum, one) << run.name << ", " << patches;
  }
}

TEST(PatchedRing, ExpertsAreSpreadOverTheSameRanks) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run(kNetworks[0], dtype, 6, 10);
    for (const char* schedule :
         {"", ",schedule=interweaved", ",schedule=displaced,warmup=2", ",conditional=random"}) {
      const auto one = run(asked(std::string("ring=2,patches=3") + schedule)).steps;
      for (const char* plan :
           {"ring=2,expert=2,patches=3", "cfg=2,ring=2,expert=4,patches=3,placement=strided",
            "pipefusion=2,ring=2,ulysses=2,expert=4,patches=3"})
        EXPECT_EQ(run(asked(std::string(plan) + schedule)).steps, one) << plan << schedule;
    }
  }
}

}  // namespace
}  // namespace tessera
