#include "parallel/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using tensor::Tensor;
using Token = std::pair<int, int64_t>;  // sequence of the request, id

Tensor counted(int64_t rows) {
  std::vector<float> values(static_cast<size_t>(rows * 2));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::from(std::span<const float>(values), {rows, 2});
}

int draw(std::mt19937& random, int lowest, int highest) {
  return lowest + int(random() % uint32_t(highest - lowest + 1));
}

// Ranks along all axes of a partition, and patches.
struct Cut {
  int data = 1, cfg = 1, ring = 1, ulysses = 1, distrifusion = 1, pipefusion = 1, tensor = 1;
  int shard = 1;
  int patches = 1;
  bool reordered = false;

  comm::Mesh mesh() const {
    std::vector<Axis> axes{{"data", data},   {"cfg", cfg},         {"pipefusion", pipefusion},
                           {"ring", ring},   {"ulysses", ulysses}, {"distrifusion", distrifusion},
                           {"shard", shard}, {"tensor", tensor}};
    if (reordered) std::rotate(axes.begin(), axes.begin() + 3, axes.begin() + 5);
    return comm::Mesh(axes);
  }
  int world() const { return mesh().size(); }
  std::string text() const {
    std::string text = "patches=" + std::to_string(patches);
    const comm::Mesh all = mesh();
    for (const Axis& axis : all.axes()) text += "," + axis.name + "=" + std::to_string(axis.size);
    return text;
  }
};

Cut random_cut(std::mt19937& random) {
  Cut cut;
  cut.data = draw(random, 1, 3);
  cut.cfg = draw(random, 1, 2);
  cut.ring = draw(random, 1, 3);
  cut.ulysses = draw(random, 1, 3);
  cut.distrifusion = random() % 3 == 0 ? draw(random, 2, 4) : 1;
  cut.pipefusion = draw(random, 1, 2);
  cut.tensor = draw(random, 1, 2);
  cut.shard = random() % 3 == 0 ? draw(random, 2, 3) : 1;
  cut.patches = draw(random, 1, 6);
  cut.reordered = random() % 2;
  return cut;
}

Workload random_workload(std::mt19937& random) {
  return {draw(random, 1, 4),
          {draw(random, 1, 3), draw(random, 1, 6), draw(random, 1, 5)},
          draw(random, 1, 2),
          1,
          draw(random, 0, 7)};
}

void add(const nn::Segments& segments, const std::vector<int>& sequences,
         std::vector<Token>& tokens) {
  for (const nn::Segment& s : segments) {
    EXPECT_GT(s.ids.size(), 0);
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id)
      tokens.emplace_back(sequences.at(size_t(s.sequence)), id);
  }
}

std::vector<Token> tokens_of(const Partition& partition, int rank, int patch) {
  const nn::TokenView view = partition.view(rank, patch);
  std::vector<Token> tokens;
  add(view.prefix, partition.sequences(rank), tokens);
  add(view.body, partition.sequences(rank), tokens);
  return tokens;
}

// Ranks with equal coordinates on the axes that split tokens hold the same tokens.
bool first_of_its_kind(const Partition& partition, int rank) {
  const comm::Mesh& mesh = partition.mesh();
  return mesh.coordinate(rank, "pipefusion") == 0 && mesh.coordinate(rank, "tensor") == 0;
}

using Body = std::function<void(const Cut&, const Workload&, const Partition&)>;
void with_random_cuts(uint32_t seed, int rounds, const Body& body) {
  std::mt19937 random(seed);
  for (int round = 0; round < rounds && !testing::Test::HasFatalFailure(); ++round) {
    const Cut cut = random_cut(random);
    const Workload work = random_workload(random);
    const auto shape = random() % 2 ? PatchShape::bands : PatchShape::runs;
    body(cut, work, Partition(cut.mesh(), work, cut.patches, shape));
  }
}

TEST(Partition, EveryTokenOfEveryRowHasOneOwner) {
  with_random_cuts(1, 400, [&](const Cut& cut, const Workload& work, const Partition& partition) {
    std::map<Token, int> owners;
    for (int r = 0; r < cut.world(); ++r)
      if (first_of_its_kind(partition, r))
        for (const Token& token : tokens_of(partition, r, -1)) ++owners[token];
    ASSERT_EQ(owners.size(), size_t(work.samples * work.branches * (work.prefix + work.tokens())))
        << cut.text();
    for (const auto& [token, count] : owners) ASSERT_EQ(count, 1) << cut.text();
  });
}

TEST(Partition, ARankOwnsTheUnionOfItsShardsOfAllPatches) {
  with_random_cuts(2, 200, [&](const Cut& cut, const Workload&, const Partition& partition) {
    for (int r = 0; r < cut.world(); ++r) {
      std::vector<Token> all = tokens_of(partition, r, -1), parts;
      for (int p = 0; p < cut.patches; ++p) {
        const auto part = tokens_of(partition, r, p);
        parts.insert(parts.end(), part.begin(), part.end());
      }
      std::sort(all.begin(), all.end());
      std::sort(parts.begin(), parts.end());
      ASSERT_EQ(all, parts) << cut.text() << ", rank " << r;
    }
  });
}

TEST(Partition, CuttingAndJoiningGiveTheWhole) {
  with_random_cuts(3, 300, [&](const Cut& cut, const Workload& work, const Partition& partition) {
    const Tensor whole = counted(work.samples * work.tokens());
    std::vector<Tensor> parts;
    for (int r = 0; r < cut.world(); ++r) {
      parts.push_back(partition.cut(whole, r));
      // A row of the latent for each token of a branch, in the order of the view.
      const auto sequences = partition.sequences(r);
      int64_t at = 0;
      for (const nn::Segment& s : partition.view(r).body) {
        if (sequences[size_t(s.sequence)] / work.samples != sequences[0] / work.samples) break;
        const int64_t first =
            sequences[size_t(s.sequence)] % work.samples * work.tokens() + s.ids.begin;
        ASSERT_EQ(parts.back().row<float>(at)[0], float(2 * first)) << cut.text();
        at += s.ids.size();
      }
    }
    ASSERT_EQ(partition.join(parts).to_floats(), whole.to_floats()) << cut.text();
  });
}

TEST(Partition, JoinedTextIsTheWhole) {
  with_random_cuts(5, 300, [&](const Cut& cut, const Workload& work, const Partition& partition) {
    if (work.prefix == 0) return;
    const Tensor whole = counted(work.samples * work.branches * work.prefix);
    std::vector<Tensor> parts;
    for (int r = 0; r < cut.world(); ++r) {
      const auto sequences = partition.sequences(r);
      std::vector<float> rows;
      for (const nn::Segment& s : partition.view(r).prefix)
        for (int64_t id = s.ids.begin; id < s.ids.end; ++id) {
          const float* row =
              whole.row<float>((sequences[size_t(s.sequence)] + 1) * work.prefix + id);
          rows.insert(rows.end(), row, row + 2);
        }
      parts.push_back(Tensor::from(std::span<const float>(rows), {std::ssize(rows) / 2, 2}));
    }
    ASSERT_EQ(partition.join(parts, Rows::text).to_floats(), whole.to_floats()) << cut.text();
  });
}

TEST(Partition, RanksTogetherHoldWhatEachOfThemHolds) {
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    const Cut cut = random_cut(random);
    const Partition partition(cut.mesh(), random_workload(random), cut.patches);
    const std::string_view axes[] = {"ulysses"};
    const auto group = partition.mesh().group(draw(random, 0, cut.world() - 1), axes);
    for (const int patch : {-1, draw(random, 0, cut.patches - 1)}) {
      const nn::TokenView all = partition.view(group, patch);
      int64_t text = 0, body = 0;
      for (const int r : group) {
        const nn::TokenView one = partition.view(r, patch);
        EXPECT_EQ(one.sequences, all.sequences);
        text += nn::token_count(one.prefix);
        body += nn::token_count(one.body);
        EXPECT_NO_THROW(places_of(all.body, one.body)) << cut.text();
      }
      EXPECT_EQ(nn::token_count(all.body), body);
      const bool parted = cut.ring * cut.ulysses > 1;
      EXPECT_EQ(nn::token_count(all.prefix), parted ? text : text / int64_t(group.size()));
    }
  }
}

TEST(Partition, BandsAreTheSameLinesOfEveryFrame) {
  const Partition bands(mesh_of({}), {1, {3, 4, 5}}, 2, PatchShape::bands);
  EXPECT_EQ(bands.view(0, 1).body, (nn::Segments{{0, {10, 20}}, {0, {30, 40}}, {0, {50, 60}}}));
  EXPECT_EQ(bands.view(0).body, (nn::Segments{{0, {0, 60}}}));
  const Partition runs(mesh_of({}), {1, {3, 4, 5}}, 2);
  EXPECT_EQ(runs.view(0, 1).body, (nn::Segments{{0, {30, 60}}}));
}

TEST(Partition, TextRidesWithTheFirstPatch) {
  const Cut cut{.ulysses = 2, .patches = 3};
  const Partition partition(cut.mesh(), {1, {1, 1, 12}, 1, 1, 5}, cut.patches);
  EXPECT_EQ(partition.view(0, 0).prefix, (nn::Segments{{0, {-5, -3}}}));
  EXPECT_EQ(partition.view(1, 0).prefix, (nn::Segments{{0, {-3, 0}}}));
  EXPECT_TRUE(partition.view(1, 1).prefix.empty());
  EXPECT_EQ(partition.view(1).body, (nn::Segments{{0, {0, 1}}, {0, {3, 6}}, {0, {9, 12}}}));
  EXPECT_EQ(partition.view(0).body, (nn::Segments{{0, {1, 3}}, {0, {6, 9}}}));
  EXPECT_FALSE(partition.whole_samples());
  EXPECT_TRUE(Partition(parse_plan("data=2"), {2, {1, 1, 4}}).whole_samples());
  EXPECT_FALSE(Partition(parse_plan("patches=2"), {2, {1, 1, 4}}).whole_samples());
}

TEST(Partition, TheFirstPatchIsSmallerByItsText) {
  const auto sizes = [](const char* plan, const Workload& work) {
    const Partition partition(parse_plan(plan), work);
    std::vector<int64_t> tokens;
    for (int p = 0; p < parse_plan(plan).patch_count(); ++p)
      tokens.push_back(nn::token_count(partition.view(0, p).body));
    return tokens;
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes("patches=4", {1, {1, 4, 8}}), (Sizes{8, 8, 8, 8}));
  EXPECT_EQ(sizes("patches=4", {1, {1, 4, 8}, 1, 1, 4}), (Sizes{5, 9, 9, 9}));
  EXPECT_EQ(sizes("patches=4", {1, {1, 4, 8}, 1, 1, 500}), (Sizes{1, 1, 1, 29}))
      << "no patch is empty";
  EXPECT_EQ(sizes("patches=3,cut=bands", {1, {2, 6, 2}, 1, 1, 6}), (Sizes{4, 8, 12}));
  EXPECT_EQ(sizes("pipefusion=3", {1, {1, 1, 3}, 1, 1, 9}), (Sizes{1, 1, 1}));
}

TEST(Partition, SaysWhereAPatchStandsAmongTheRowsOfARank) {
  const Partition partition(parse_plan("patches=2,ulysses=2,data=2"), {4, {1, 1, 8}});
  EXPECT_EQ(partition.view(1).body.size(), 4u);
  EXPECT_EQ(partition.places(1, -1), (std::vector<nn::Range>{{0, 2}, {2, 4}, {4, 6}, {6, 8}}));
  EXPECT_EQ(partition.places(1, 0), (std::vector<nn::Range>{{0, 2}, {4, 6}}));
  EXPECT_EQ(partition.places(1, 1), (std::vector<nn::Range>{{2, 4}, {6, 8}}));
}

TEST(Partition, TheLatentIsTheLastStages) {
  const Partition partition(parse_plan("pipefusion=2,patches=1"), {1, {1, 1, 3}});
  const Tensor whole = counted(3);
  EXPECT_EQ(partition.join({whole.slice(0, 0, 0), whole}).to_floats(), whole.to_floats());
}

TEST(Partition, RowsAreConditionalFirst) {
  const Partition partition(parse_plan("data=2"), {5, {1, 1, 7}, 2});
  EXPECT_EQ(partition.sequences(1), (std::vector<int>{2, 3, 4, 7, 8, 9}));
  EXPECT_EQ(partition.view(1).body.size(), 6u);
  EXPECT_EQ(partition.shape(1).batch, 6);
  EXPECT_EQ(Partition(Cut{.cfg = 2}.mesh(), {3, {1, 1, 7}, 2}).sequences(1),
            (std::vector<int>{3, 4, 5}));
}

const nn::TokenView kPass{-1, {0, 3}, {}, {{0, {4, 9}}, {3, {0, 2}}}, {12, 2}};

TEST(Partition, CutsAPassInPackedOrder) {
  for (int ranks : {1, 2, 3, 9}) {
    Plan plan;
    plan.data = plan.expert = ranks;
    const Partition partition = Partition::of_pass(plan, kPass);
    std::vector<int> all;
    for (int r = 0; r < ranks; ++r) {
      const nn::TokenView mine = partition.view(r);
      EXPECT_EQ(nn::token_count(mine.body), partition.run(r).size());
      EXPECT_EQ(mine.sequences, kPass.sequences);
      EXPECT_EQ(mine.lengths.size(), mine.body.size());
      all.push_back(r);
    }
    EXPECT_EQ(partition.view(all).body, kPass.body);
    if (ranks != 3) continue;
    EXPECT_EQ(partition.view(2).body, (nn::Segments{{0, {8, 9}}, {3, {0, 2}}}));
    EXPECT_EQ(partition.view(2).lengths, (std::vector<int64_t>{12, 2}));
  }
  EXPECT_THROW(Partition::of_pass({}, {-1, {0}, {}, {{0, {0, 4}}}, {}}), Error);
}

TEST(Partition, FindsPartsInThePackedOrder) {
  EXPECT_EQ(places_of(kPass.body, {{0, {5, 8}}, {3, {1, 2}}}),
            (std::vector<nn::Range>{{1, 4}, {6, 7}}));
  EXPECT_THROW(places_of(kPass.body, {{3, {1, 3}}}), Error);
}

TEST(Partition, RowsOfAViewKeepTheirNumbers) {
  const nn::TokenView whole = Partition(Plan{}, {3, {1, 1, 7}, 1, 1, 2}).view(0);
  const nn::TokenView part = take_sequences(whole, 1, 3);
  EXPECT_EQ(part.sequences, (std::vector<int>{1, 2}));
  EXPECT_EQ(part.body, (nn::Segments{{1, {0, 7}}, {2, {0, 7}}}));
  EXPECT_EQ(part.prefix, (nn::Segments{{1, {-2, 0}}, {2, {-2, 0}}}));
  EXPECT_TRUE(take_sequences(whole, 3, 3).body.empty());
}

TEST(Partition, SaysWhatOthersHaveOfSomeSequences) {
  const Partition partition(parse_plan("ulysses=2"), {3, {1, 1, 5}, 1, 1, 3});
  const nn::TokenView half = take_sequences(partition.view(0), 1, 3);
  const nn::TokenView theirs = partition.beside(half, {1}), all = partition.beside(half, {0, 1});
  EXPECT_EQ(theirs.sequences, (std::vector<int>{1, 2}));
  EXPECT_EQ(theirs.prefix, (nn::Segments{{1, {-2, 0}}, {2, {-2, 0}}}));
  EXPECT_EQ(theirs.body, (nn::Segments{{1, {2, 5}}, {2, {2, 5}}}));
  EXPECT_EQ(all.body, (nn::Segments{{1, {0, 5}}, {2, {0, 5}}}));
  EXPECT_TRUE(partition.beside(take_sequences(half, 2, 2), {1}).body.empty());
}

TEST(Partition, SamplesAreDealtOutToRanksThatShareWeights) {
  const Plan plan = parse_plan("data=2,shard=2");
  const auto of = [&](int samples, int rank) {
    return Partition(plan, {.samples = samples, .grid = {1, 2, 2}, .branches = 2}).sequences(rank);
  };
  EXPECT_EQ(of(4, 1), (std::vector<int>{1, 5}));
  EXPECT_EQ(of(4, 2), (std::vector<int>{2, 6}));
  std::set<int> held;
  for (int r = 0; r < 4; ++r)
    for (const int sequence : of(3, r)) EXPECT_TRUE(held.insert(sequence).second);
  EXPECT_EQ(held.size(), 6u) << "a rank may have none";
  const Partition one(parse_plan("shard=3"), {.grid = {1, 2, 2}});
  EXPECT_EQ(one.sequences(0), std::vector<int>{0});
  EXPECT_TRUE(one.sequences(1).empty());
}

TEST(Partition, ExpertGroupsAreNeighboursWithDifferentTokens) {
  const Plan plan = parse_plan("data=4,expert=2");
  EXPECT_EQ(expert_group(plan, 1), (std::vector<int>{0, 1}));
  EXPECT_EQ(expert_group(plan, 2), (std::vector<int>{2, 3}));
  EXPECT_EQ(expert_place(plan, 3), 1);
  EXPECT_EQ(portion_number(plan, 3), portion_number(plan, 1));
  const Plan slices = parse_plan("data=2,distrifusion=2,tensor=2,expert=4");
  EXPECT_EQ(expert_group(slices, 3), (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(expert_place(slices, 5), 2);
  const Plan staged = parse_plan("data=2,expert=2,pipefusion=2");
  EXPECT_EQ(expert_group(staged, 1), (std::vector<int>{1, 3})) << "of a stage";
  std::set<int> numbers;
  for (int r = 0; r < 4; ++r) numbers.insert(portion_number(staged, r));
  EXPECT_EQ(numbers.size(), 4u);
  const Plan spread = parse_plan("data=2,expert=2,shard=2");
  EXPECT_EQ(expert_group(spread, 1), (std::vector<int>{1, 3})) << "with the same runs of weights";
  numbers.clear();
  for (int r = 0; r < 4; ++r) numbers.insert(portion_number(spread, r));
  EXPECT_EQ(numbers.size(), 4u);
  const Plan copies = parse_plan("cfg=2,shard=2");
  EXPECT_EQ(portion_number(copies, 0), portion_number(copies, 2));
  EXPECT_NE(portion_number(copies, 0), portion_number(copies, 1));
}

}  // namespace
}  // namespace tessera::parallel
