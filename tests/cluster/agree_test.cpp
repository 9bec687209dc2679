#include "cluster/agree.h"

#include <gtest/gtest.h>

#include <fstream>
#include <new>
#include <thread>

#include "base/fail.h"
#include "cluster/processes.h"
#include "comm/collectives.h"
#include "comm/threads/launch.h"
#include "load/scratch_folder.h"

namespace tessera::cluster {
namespace {

using namespace std::chrono_literals;

// The messages of all three ranks if rank 2 has `other`.
std::vector<std::string> told(const RunFingerprint& usual, const RunFingerprint& other) {
  std::vector<std::string> messages(3);
  try {
    comm::threads::run(3, 10s, [&](comm::Communicator& world) {
      const int rank = world.rank();
      try {
        require_same(world, [&] { return rank == 2 ? other : usual; });
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::rank);
        messages[static_cast<size_t>(rank)] = error.what();
      }
    });
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  return messages;
}

TEST(Agree, EqualTermsAreNoError) {
  RunFingerprint terms;
  terms.say("`seed`", "3");
  EXPECT_EQ(told(terms, terms), (std::vector<std::string>(3)));
}

TEST(Agree, EveryRankNamesTheRankAndTheThing) {
  RunFingerprint usual, other;
  for (RunFingerprint* terms : {&usual, &other}) terms->say("`steps`", "20");
  usual.say("`seed`", "3");
  other.say("`seed`", "4");
  for (const std::string& message : told(usual, other))
    EXPECT_EQ(message,
              "ranks do not run the same: `seed` of rank 2 is '4', of rank 0 '3'; start all ranks "
              "with one program, model and request");
}

TEST(Agree, AThingThatOneRankLacksIsNamed) {
  RunFingerprint usual, other;
  usual.say("`seed`", "3");
  for (const std::string& message : told(usual, other))
    EXPECT_NE(message.find("`seed` of rank 2"), std::string::npos) << message;
  for (const std::string& message : told(other, usual))
    EXPECT_NE(message.find("`seed` of rank 2"), std::string::npos) << message;
}

TEST(Agree, TermsThatOneRankCannotSayAreTheErrorOfAll) {
  comm::threads::run(3, 60s, [](comm::Communicator& world) {
    for (const int failing : {1, 3}) {
      const auto terms = [&]() -> RunFingerprint {
        if (world.rank() >= failing) fail(ErrorCode::model, "no file on {}", world.rank());
        return {};
      };
      std::string said;
      try {
        require_same(world, terms);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::model);
        said = e.what();
      }
      EXPECT_EQ(said, failing == 1 ? "rank 1, which compares the run: no file on 1" : "");
    }
  });
}

TEST(Agree, LongAndOddValuesAreTold) {
  RunFingerprint usual, other;
  usual.say("the prompt", std::string(100, 'x'));
  other.say("the prompt", "\xff\n");
  for (const std::string& message : told(usual, other)) {
    EXPECT_NE(message.find("2 characters, digest "), std::string::npos) << message;
    EXPECT_NE(message.find("100 characters, digest "), std::string::npos) << message;
  }
}

TEST(RunFingerprint, AFileCountsBySizeAndBytes) {
  const load::ScratchFolder folder;
  const auto terms_of_file = [&](const std::string& bytes) {
    const std::string path = folder.path("file");
    std::ofstream(path, std::ios::binary) << bytes;
    RunFingerprint terms;
    terms.file("it", path);
    return terms.items();
  };
  for (const size_t size : {0u, 1u, 4095u, 4096u, 4097u, 9000u, 100000u}) {
    std::string bytes(size, 'a');
    const auto before = terms_of_file(bytes);
    EXPECT_EQ(before, terms_of_file(bytes));
    EXPECT_NE(before, terms_of_file(bytes + 'a')) << size;
    for (const size_t at : {size_t{0}, size / 2, size - 1}) {
      if (size == 0) continue;
      std::string changed = bytes;
      changed[at] = 'b';
      EXPECT_NE(before, terms_of_file(changed)) << size << ", byte " << at;
    }
  }
}

TEST(Agree, WhatOneRankOfAGroupThrowsEndsTheWaitsOfAllByItsName) {
  const auto said = [](int failing) -> std::string {
    try {
      comm::threads::run(3, 60s, [&](comm::Communicator& world) {
        try {
          if (world.rank() == failing) fail(ErrorCode::memory, "spoilt");
          world.receive(failing, {"x", 1}).wait();
        } catch (const std::exception& e) {
          end_all(world, world.rank(), e, "encodes");
        }
      });
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(said(1), "rank 1, which encodes: spoilt");
  EXPECT_EQ(said(0), "spoilt");
}

// A rank's error in a request, as "code: text".
std::string said_of(comm::Communicator& world,
                    const std::function<void(comm::Communicator& ranks)>& part) {
  try {
    run_collectively(world, part);
  } catch (const Error& e) {
    return fmt::format("{}: {}", static_cast<int>(e.code()), e.what());
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

// Sends a message to the next rank and receives one from the previous.
void pass_on(comm::Communicator& ranks, int round) {
  const int me = ranks.rank(), size = ranks.size();
  const auto mine = tensor::Tensor::from(std::vector<int32_t>{me, round}, {2});
  ranks.send((me + 1) % size, mine, {"x", -1});
  const auto got = ranks.receive((me + size - 1) % size, {"x", -1}).wait();
  EXPECT_EQ(got.data<int32_t>()[0], (me + size - 1) % size);
  EXPECT_EQ(got.data<int32_t>()[1], round) << "a message of an earlier request";
}

TEST(EndTogether, WhereverOneRankFailsAllThrowThatAtOnceAndDoTheNextRequest) {
  comm::threads::run(3, 60s, [](comm::Communicator& world) {
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < 24; ++round) {
      const int fails = round % 3, before = round / 3 % 4;
      const std::string said = said_of(world, [&](comm::Communicator& ranks) {
        const auto other = ranks.group({0, 1, 2});
        for (int i = 0; i < 3; ++i) {
          if (i == before && ranks.rank() == fails) fail(ErrorCode::memory, "no memory");
          other->send((ranks.rank() + 1) % 3, tensor::Tensor::zeros({9}, tensor::DType::u8),
                      {"never", i});
          pass_on(ranks, round);
        }
        if (ranks.rank() == fails) fail(ErrorCode::memory, "no memory");  // behind all waits
      });
      EXPECT_EQ(said, fails == 0 ? "6: no memory"
                                 : fmt::format("6: rank {}, which computes: no memory", fails));
      EXPECT_EQ(said_of(world, [&](comm::Communicator& ranks) { pass_on(ranks, round); }), "");
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  });
}

TEST(EndTogether, OfSeveralThatFailAtOnceTheLowestIsTold) {
  comm::threads::run(3, 60s, [](comm::Communicator& world) {
    for (int round = 0; round < 20; ++round) {
      const std::string said = said_of(world, [&](comm::Communicator& ranks) {
        comm::barrier(world);
        if (ranks.rank() > 0) fail(ErrorCode::model, "spoilt on {}", ranks.rank());
        ranks.receive(2, {"never", -1}).wait();
      });
      EXPECT_EQ(said, "3: rank 1, which computes: spoilt on 1");
    }
  });
}

// A rank may be ahead of another by more than a step, and the other takes none of its messages.
TEST(EndTogether, WhatIsOnTheWayToARankThatFailsKeepsNobodyWaiting) {
  comm::threads::run(2, 60s, [](comm::Communicator& world) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string said = said_of(world, [&](comm::Communicator& ranks) {
      comm::barrier(world);
      if (ranks.rank() == 1) {
        std::this_thread::sleep_for(50ms);
        fail(ErrorCode::memory, "no memory");
      }
      const auto much = tensor::Tensor::zeros({int64_t{100} << 20}, tensor::DType::u8);
      for (int i = 0; i < 5; ++i) ranks.send(1, much, {"flood", i});
    });
    EXPECT_EQ(said, "6: rank 1, which computes: no memory");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  });
}

TEST(EndTogether, WhatAllThrowAlikeGetsNoName) {
  comm::threads::run(3, 60s, [](comm::Communicator& world) {
    const std::string said = said_of(world, [](comm::Communicator& ranks) {
      if (ranks.rank() > 0) throw SharedError(ErrorCode::model, "no numbers");
      ranks.receive(2, {"never", -1}).wait();  // the error arrives before the rank's own
    });
    EXPECT_EQ(said, "3: no numbers");
  });
}

TEST(EndTogether, WhatNamesARankKeepsItsName) {
  comm::threads::run(2, 60s, [](comm::Communicator& world) {
    const auto decodes = [](comm::Communicator& ranks) {
      try {
        if (ranks.rank() == 1) fail(ErrorCode::memory, "no memory");
        ranks.receive(1, {"never", -1}).wait();
      } catch (const std::exception& e) {
        end_all(ranks, ranks.rank(), e, "decodes");
      }
    };
    EXPECT_EQ(said_of(world, decodes), "6: rank 1, which decodes: no memory");
    const auto stops = [](comm::Communicator& ranks) {
      if (ranks.rank() == 1) fail(ErrorCode::cancelled, "stopped");
      ranks.receive(1, {"never", -1}).wait();
    };
    EXPECT_EQ(said_of(world, stops), "130: stopped");
  });
}

TEST(EndTogether, WhatACallbackThrowsItsRankThrowsAndTheOthersStop) {
  comm::threads::run(2, 60s, [](comm::Communicator& world) {
    const std::string said = said_of(world, [](comm::Communicator& ranks) {
      if (ranks.rank() == 0) throw std::logic_error("the disk is full");
      ranks.receive(0, {"never", -1}).wait();
    });
    EXPECT_EQ(said,
              world.rank() == 0 ? "the disk is full" : "130: rank 0 stopped: the disk is full");
    EXPECT_EQ(said_of(world, [](comm::Communicator& ranks) { pass_on(ranks, 1); }), "");
  });
}

TEST(EndTogether, ALostRankEndsTheWorld) {
  EXPECT_THROW(comm::threads::run(2, 60s,
                                  [](comm::Communicator& world) {
                                    run_collectively(world, [](comm::Communicator& ranks) {
                                      if (ranks.rank() == 1) fail(ErrorCode::rank, "lost");
                                      ranks.receive(1, {"never", -1}).wait();
                                    });
                                  }),
               Error);
}

TEST(EndTogether, WhatIsSaidAtTheEndIsNoTraffic) {
  comm::threads::run(2, 60s, [](comm::Communicator& world) {
    run_collectively(world, [](comm::Communicator& ranks) { pass_on(ranks, 0); });
    EXPECT_EQ(world.ledger().total().messages, 1);
    EXPECT_EQ(world.ledger().total().bytes, 8);
  });
}

}  // namespace
}  // namespace tessera::cluster
