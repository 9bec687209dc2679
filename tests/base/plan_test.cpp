#include "tessera/plan.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera {
namespace {

TEST(Plan, WritesWhatItReads) {
  for (const char* text :
       {"",
        "tensor=2",
        "data=2,distrifusion=3,warmup=2",
        "data=4,expert=2,schedule=interweaved,sync=deep,conditional=low,stride=3",
        "schedule=displaced,sync=0+3+5,sync-every=4,scores=latest",
        "warmup=3,cooldown=2,schedule=interweaved",
        "conditional=random,conditional-layers=async",
        "schedule=adaptive,budget=30,sync=0",
        "schedule=staggered-batch,conditional=low",
        "data=2,expert=2,placement=strided",
        "data=2,expert=2,placement=1+0+0+1",
        "data=3,expert=3,moe=fused,placement=strided",
        "data=2,distrifusion=2,order=distrifusion+data+cfg+pipefusion+ring+ulysses+shard+tensor",
        "cfg=2,shard=4",
        "data=2,cfg=2,ring=3,ulysses=4,tensor=2",
        "patches=1",
        "pipefusion=4,patches=8,warmup=2",
        "pipefusion=2,cut=bands,stages=19+38",
        "cfg=2,ulysses=3,vae=5",
        "ulysses=2,vae=+3",
        "vae=+1",
        "shards=4",
        "cfg=2,distrifusion=2,shards=4,warmup=2"})
    EXPECT_EQ(to_string(parse_plan(text)), text);
  EXPECT_EQ(parse_plan("data=2,tensor=3").world(), 6);
  EXPECT_EQ(parse_plan("cfg=2,ring=3,ulysses=4").world(), 24);
  EXPECT_EQ(parse_plan("cfg=2,shard=3").world(), 6);
  EXPECT_EQ(parse_plan("cfg=2,pipefusion=3,patches=8").world(), 6) << "patches are no ranks";
  EXPECT_EQ(parse_plan("ulysses=2,vae=2").ranks(), 2);
  EXPECT_EQ(parse_plan("ulysses=2,vae=+3").world(), 2) << "those that denoise";
  EXPECT_EQ(parse_plan("ulysses=2,vae=+3").ranks(), 5);
  EXPECT_EQ(parse_plan("distrifusion=2,shards=6").world(), 2) << "nor are shards";
  EXPECT_EQ(parse_plan("distrifusion=3").shard_count(), 3);
  EXPECT_EQ(parse_plan("shards=3").shard_count(), 3);
  EXPECT_EQ(parse_plan("pipefusion=3").patch_count(), 3);
  EXPECT_EQ(parse_plan("pipefusion=3,patches=1").patch_count(), 1);
  EXPECT_EQ(to_string(parse_plan("expert=4")), "data=4,expert=4") << "expert alone implies data";
}

TEST(Plan, NamesWhatItCannotRead) {
  for (const char* text :
       {"data",          "data=0",          "data=-1",          "data=two",
        "speed=9",       "data=2,data=2",   "data=99999999",    "cfg=3",
        "stride=0",      "sync=0+",         "sync=middle",      "schedule=fast",
        "sync-every=-1", "cooldown=-1",     "cooldown=two",     "conditional=none",
        "budget=101",    "scores=",         "warmup=0",         "schedule=staggered",
        "placement=",    "placement=0+",    "placement=random", "moe=",
        "moe=exchange",  "placement=0+-1",  "cut=columns",      "patches=-1",
        "shards=-1",     "shard=0",         "stages=",          "stages=1+",
        "stages=even",   "vae=+",           "vae=++3",          "order=",
        "order=data+",   "order=data+data", "order=expert"}) {
    try {
      parse_plan(text);
      FAIL() << text << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plan);
    }
  }
}

TEST(Plan, AListIsQuotedAsItWasGiven) {
  try {
    parse_plan("pipefusion=2,stages=4+");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'stages=4+': expected whole numbers from 0 to 65536, and "
                                         "+ between them"),
              std::string::npos)
        << e.what();
  }
}

TEST(Plan, TheOrderOfAxesIsPartOfIt) {
  const auto order = [](const char* text) {
    std::string names;
    for (const Axis& axis : axes_of(parse_plan(text)))
      names += axis.name.substr(0, 1) + std::to_string(axis.size);
    return names;
  };
  EXPECT_EQ(order("data=2,tensor=3"), "d2c1p1r1u1d1s1t3");
  EXPECT_EQ(order("data=2,tensor=3,order=tensor+distrifusion"), "t3d1d2c1p1r1u1s1");
  EXPECT_EQ(to_string(parse_plan("data=2,order=data+cfg")), "data=2") << "the default";
}

TEST(Plan, SaysWhyItCannotRun) {
  EXPECT_TRUE(problems(parse_plan(""), 1).empty());
  EXPECT_EQ(problems(parse_plan("data=2"), 1).size(), 1u);
  EXPECT_EQ(problems(parse_plan(""), 2).size(), 1u);
  EXPECT_EQ(problems(parse_plan("data=3,expert=2"), 3).size(), 1u);
  EXPECT_EQ(problems(parse_plan("sync=deep"), 1).size(), 1u);
  EXPECT_EQ(problems(parse_plan("budget=40"), 1).size(), 1u);
  EXPECT_EQ(problems(parse_plan("schedule=staggered-batch,sync=deep"), 1).size(), 1u);
  EXPECT_EQ(problems(parse_plan("schedule=staggered-batch,distrifusion=2"), 2).size(), 1u);
  EXPECT_EQ(problems(parse_plan("ulysses=2,distrifusion=2"), 4).size(), 1u);
  EXPECT_TRUE(problems(parse_plan("ring=2,schedule=adaptive"), 2).empty()) << "it may fit a size";
  EXPECT_TRUE(problems(parse_plan("cfg=2,ring=2,ulysses=3,expert=6"), 12).empty());
  const auto refused = [](const char* text, const char* says) {
    const Plan plan = parse_plan(text);
    const auto found = problems(plan, plan.world());
    EXPECT_EQ(found.size(), 1u) << text;
    EXPECT_NE((found.empty() ? "" : found[0]).find(says), std::string::npos) << text;
  };
  refused("patches=2,distrifusion=2", "leave it out, or them");
  refused("pipefusion=2,distrifusion=2", "leave it out, or them");
  refused("pipefusion=2,patches=1,distrifusion=2", "leave it out, or them");
  refused("patches=2,shards=2", "and shards= those of other shards; leave it out, or them");
  refused("ulysses=2,shards=2", "and so does shards=; leave it out, or them");
  refused("shards=2,schedule=staggered-batch", "keys and values of shards= belong to all of them");
  refused("tensor=2,shards=2", "leave out expert= and shards=, or tensor=");
  refused("distrifusion=2,shards=3", "use a multiple of 2, or leave shards= out");
  refused("distrifusion=4,shards=1", "use a multiple of 4");
  refused("shard=2,schedule=staggered-batch", "leave one of the two out");
  refused("data=2,shard=2,expert=2,schedule=displaced", "use schedule=interweaved");
  refused("shard=2,expert=2", "add data=2 or ulysses=2");
  refused("patches=2,schedule=staggered-batch", "all of them through a stage");
  refused("pipefusion=2,patches=1,schedule=staggered-batch", "through a stage");
  refused("pipefusion=3,stages=2+2", "stages=2+2 names 2 stages, pipefusion=3 has 3");
  refused("stages=2+2", "pipefusion=1 has 1");
  refused("pipefusion=2,stages=4+0", "each stage has a block at least");
  refused("cut=bands", "add patches=");
  refused("ulysses=2,vae=3",
          "and it has 2; use vae=2 or less, vae=+3 for ranks of their own, or add");
  refused("pipefusion=2,stages=3", "stages=3 names 1 stage, pipefusion=2 has 2");
  refused("pipefusion=2,expert=2",
          "expert=2 does not divide the 1 rank that holds different tokens (stages hand the same "
          "ones on); add data=2 or ulysses=2");
  refused("cfg=2,expert=3", "use one of 1, 2");
  EXPECT_TRUE(problems(parse_plan("data=2,cfg=2,pipefusion=2,ulysses=3,expert=6"), 24).empty());
  for (const char* ring : {"pipefusion=2,patches=1,ring=3", "pipefusion=2,patches=8,ring=3"})
    EXPECT_TRUE(problems(parse_plan(ring), 6).empty());
  EXPECT_EQ(problems(parse_plan("placement=strided"), 1).size(), 1u);
  EXPECT_EQ(problems(parse_plan("expert=2,placement=0+1+2+3"), 2).size(), 1u);
  EXPECT_EQ(problems(parse_plan("schedule=adaptive,conditional=low"), 1).size(), 1u);
  const auto two = problems(parse_plan("expert=2,tensor=2"), 2);
  ASSERT_EQ(two.size(), 1u) << "the real reason alone";
  EXPECT_NE(two[0].find("tensor= goes with data="), std::string::npos);
  EXPECT_EQ(problems(parse_plan("schedule=displaced,tensor=2"), 2).size(), 1u);
}

TEST(Plan, KnowsWhatIsStale) {
  EXPECT_FALSE(parse_plan("expert=2,schedule=staggered-batch").stale());
  EXPECT_TRUE(parse_plan("expert=2,schedule=interweaved").stale());
  EXPECT_TRUE(parse_plan("schedule=staggered-batch,conditional=low").stale());
  EXPECT_TRUE(parse_plan("patches=2").stale());
  EXPECT_TRUE(parse_plan("shards=2").stale());
  EXPECT_FALSE(parse_plan("shards=1").stale());
  EXPECT_FALSE(parse_plan("pipefusion=2,patches=1").stale());
}

TEST(Plan, CallsTheBlocksOnceAPatchWhereNothingIsFresh) {
  const Plan plan = parse_plan("patches=4,warmup=2,sync-every=3");
  std::vector<int> calls;
  for (int step = 0; step < 7; ++step) calls.push_back(plan.calls(step, 7));
  EXPECT_EQ(calls, (std::vector<int>{1, 1, 4, 4, 1, 4, 4}));
  EXPECT_EQ(parse_plan("schedule=interweaved").calls(3, 4), 1);
}

TEST(Plan, TheFirstAndTheLastStepsAreFresh) {
  const auto fresh = [](const std::string& plan, int steps) {
    std::string text;
    for (int s = 0; s < steps; ++s) text += parse_plan(plan).fresh(s, steps) ? '1' : '0';
    return text;
  };
  EXPECT_EQ(fresh("", 6), "100000");
  EXPECT_EQ(fresh("warmup=2,cooldown=1", 6), "110001");
  EXPECT_EQ(fresh("warmup=2,cooldown=3", 6), "110111");
  EXPECT_EQ(fresh("cooldown=2,sync-every=4", 8), "10001011");
  EXPECT_EQ(fresh("cooldown=9", 6), "111111") << "more than there are steps";
}

TEST(Plan, ValuesThatNoPlanHas) {
  check_values(parse_plan("data=2,expert=2,schedule=adaptive,sync=0+3,placement=0+1"));
  const auto refused = [](const std::function<void(Plan&)>& change) {
    Plan plan;
    change(plan);
    EXPECT_FALSE(problems(plan, 1).empty());
    try {
      check_values(plan);
    } catch (const Error& e) {
      return e.code() == ErrorCode::usage;
    }
    return false;
  };
  EXPECT_TRUE(refused([](Plan& p) { p.expert = 0; }));
  EXPECT_TRUE(refused([](Plan& p) { p.stride = -1; }));
  EXPECT_TRUE(refused([](Plan& p) { p.scores = static_cast<StaleScores>(4); }));
  EXPECT_TRUE(refused([](Plan& p) { p.sync = SyncLayers::list; }));
  EXPECT_TRUE(refused([](Plan& p) { p.order = {static_cast<PlanAxis>(8)}; }));
  EXPECT_TRUE(refused([](Plan& p) { p.order = {PlanAxis::data, PlanAxis::data}; }));
  Plan large;
  large.data = large.distrifusion = large.tensor = 1 << 16;
  EXPECT_EQ(large.world(), kMostRanks + 1);
  EXPECT_EQ(problems(large, large.world()).size(), 1u);
}

}  // namespace
}  // namespace tessera
