#include "cluster/share_prompts.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "comm/threads/launch.h"

namespace tessera::cluster {
namespace {

using namespace std::chrono_literals;

TEST(SharePrompts, AllRanksGetWhatTheFirstIsGiven) {
  const PromptIds given{{1, 2, 3}, {}, {7}};
  EXPECT_EQ(share_prompts(nullptr, [&] { return PromptIds(given); }), given);
  for (const PromptIds& prompts : {given, PromptIds()})
    for (int ranks : {1, 2, 5}) {
      std::atomic<int> asked = 0, same = 0;
      comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
        const int rank = world.rank();
        same += share_prompts(&world, [&] {
                  asked += rank == 0 ? 1 : 100;
                  return PromptIds(prompts);
                }) == prompts;
      });
      EXPECT_EQ(asked, 1);
      EXPECT_EQ(same, ranks);
    }
}

// Without the error ranks would wait for prompts until the deadline; afterwards all ranks can
// communicate.
TEST(SharePrompts, AllThrowWhatTheFirstIsNotGiven) {
  std::atomic<int> told = 0, same = 0;
  comm::threads::run(3, 20s, [&](comm::Communicator& world) {
    for (const bool known : {true, false}) try {
        share_prompts(&world, [&]() -> PromptIds {
          if (known) throw Error(ErrorCode::model, "no such prompt");
          throw std::runtime_error("no such prompt");
        });
      } catch (const Error& e) {
        told += e.what() == std::string("no such prompt") &&
                e.code() == (known ? ErrorCode::model : ErrorCode::rank);
      } catch (const std::runtime_error& e) {  // the rank's own error
        told += world.rank() == 0 && !known;
      }
    same += share_prompts(&world, [] { return PromptIds{{4}}; }) == PromptIds{{4}};
  });
  EXPECT_EQ(told, 6);
  EXPECT_EQ(same, 3);
}

TEST(SharePrompts, TheLeastThatIsSaidHolds) {
  EXPECT_EQ(least_of(nullptr, 5), 5);
  std::atomic<int> right = 0;
  comm::threads::run(3, 20s, [&](comm::Communicator& world) {
    const int rank = world.rank();
    right += least_of(&world, 4 - rank) == 2;
    right += least_of(&world, rank == 0 ? 3 : kAnyNumber) == 3;
    right += least_of(&world, rank) == 0;
  });
  EXPECT_EQ(right, 9);
}

}  // namespace
}  // namespace tessera::cluster
