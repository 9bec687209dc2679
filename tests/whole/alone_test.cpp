// NaN or infinity on a single rank: all ranks end with the same error, not at the deadline, and run
// the next request.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/fail.h"
#include "cluster/on_processes.h"
#include "comm/collectives.h"
#include "comm/transport_over.h"
#include "tessera/engine.h"
#include "test_paths.h"
#include "whole/golden.h"
#include "whole/small_video.h"

namespace tessera {
namespace {

using golden::Scratch;

RunOptions planned(const std::string& plan, const Processes* processes) {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan(plan);
  options.processes = processes;
  return options;
}

// A copy of a model with NaN in rows of a tensor.
std::string spoilt(const Scratch& scratch, const std::string& model, const std::string& file,
                   const std::string& name, int64_t begin, int64_t end) {
  const std::string folder = scratch / model, path = folder + "/" + file;
  std::filesystem::copy(TESSERA_MODELS_DIR "/" + model, folder,
                        std::filesystem::copy_options::recursive);
  std::map<std::string, tensor::Tensor> tensors;
  {
    const load::SafetensorsFile in(path);
    for (const auto& [each, entry] : in.entries()) tensors[each] = in.get(each).contiguous();
  }
  const tensor::Tensor rows = tensors.at(name).slice(0, begin, end);
  std::memset(rows.raw(), 0xff, static_cast<size_t>(rows.bytes()));
  load::write_safetensors(path, tensors);
  return folder;
}

CompleteRequest sorting() {
  CompleteRequest request;
  request.prompts = {"sort hello="};
  return request;
}

void expect_throws(const std::function<void()>& work, const std::string& says) {
  try {
    work();
    ADD_FAILURE() << "nothing was thrown, where expected was " << says;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model) << e.what();
    EXPECT_TRUE(std::string(e.what()).starts_with(says)) << e.what();
  }
}

// Runs on threads, and on simulated processes.
void on_both(int ranks, const std::function<void(const Processes* processes)>& body) {
  body(nullptr);
  on_processes(ranks, [&](const Processes& processes) { body(&processes); });
}

TEST(Alone, AStreamThatIsNoNumbersOnOneRankEndsAll) {
  const Scratch scratch;
  const std::string folder = spoilt(scratch, "tasks-a", "model.safetensors",
                                    "model.layers.1.post_attention_layernorm.weight", 0, 1);
  for (const char* plan : {"expert=2", "tensor=2"})
    on_both(2, [&](const Processes* processes) {
      const Model broken = Model::open(folder, planned(plan, processes));
      for (int i = 0; i < 2; ++i)
        expect_throws([&] { (void)broken.complete(sorting()); }, "block 1 of the model gives");
      const auto made = Model::open("tasks-a", planned(plan, processes)).complete(sorting());
      if (!made.elsewhere) {
        EXPECT_EQ(made.completions.at(0).text, "ehllo") << plan;
      }
    });
}

/// Makes a rank run out of memory for a message of a request.
struct Fault {
  std::atomic<int> rank = -1;              // -1: none does
  std::atomic<int> message = 0;            // the first is 0
  std::array<std::atomic<int>, 3> sent{};  // by rank, since the request began

  static constexpr const char* kSaid = "no memory is left for what the test sends";
  // Whether the message belongs to the plan, not to the agreement of ranks around a request.
  static bool counts(const std::string& operation) {
    for (const char* const other : {"go", "agree", "report", "close", "barrier"})
      if (operation == other) return false;
    return true;
  }
};

class FaultyTransport final : public comm::TransportOver {
 public:
  FaultyTransport(std::shared_ptr<Transport> below, Fault& fault)
      : TransportOver(std::move(below)), fault_(fault) {}
  void send(int to, uint64_t channel, comm::Message message) override {
    if (Fault::counts(message.tag.operation)) {
      const int number = fault_.sent[size_t(rank())]++;
      if (rank() == fault_.rank && number == fault_.message)
        throw Error(ErrorCode::memory, Fault::kSaid);
    }
    TransportOver::send(to, channel, std::move(message));
  }

 private:
  Fault& fault_;
};

GenerateRequest stars() {
  GenerateRequest request;
  request.classes = {"red star", "blue ring"};
  request.steps = 3;
  return request;
}

// Two texts, so both ranks of shard=2 have a text.
GenerateRequest waves() {
  GenerateRequest request;
  request.prompts = {"waves on a long beach"};
  request.negative_prompt = "fog";
  request.guidance = 3;
  request.steps = 2;
  request.width = request.height = 32;
  request.frames = 5;
  return request;
}

std::vector<uint8_t> pixels_of(const GenerateResult& result) {
  std::vector<uint8_t> all;
  for (const Image& image : result.images)
    all.insert(all.end(), image.rgb.begin(), image.rgb.end());
  return all;
}

// Each rank in turn fails at its first message, at a message in the middle, and at its last.
void expect_that_all_end(const std::string& plan, int ranks, const std::string& of = "shapes",
                         const GenerateRequest& request = stars()) {
  const auto expected = pixels_of(Model::open(of, planned(plan, nullptr)).generate(request));
  Fault fault;
  const auto faulty = [&](auto below, auto) {
    return std::make_shared<FaultyTransport>(std::move(below), fault);
  };
  const auto body = [&](const Processes& processes) {
    comm::Communicator& world = *processes.state().world;
    const Model model = Model::open(of, planned(plan, &processes));
    const auto next = [&](int rank, int message) {
      comm::barrier(world);
      if (processes.rank() == 0) {
        fault.rank = rank;
        fault.message = message;
        for (auto& sent : fault.sent) sent = 0;
      }
      comm::barrier(world);
    };
    const auto is_good = [&] {
      const GenerateResult made = model.generate(request);
      if (!made.elsewhere) {
        EXPECT_EQ(pixels_of(made), expected) << plan;
      }
    };
    next(-1, 0);
    is_good();
    comm::barrier(world);
    std::vector<int> messages(fault.sent.begin(), fault.sent.end());
    for (int rank = 0; rank < ranks; ++rank)
      for (const int message : {0, messages[size_t(rank)] / 2, messages[size_t(rank)] - 1}) {
        if (message < 0) continue;  // the rank sends nothing
        for (int times = 0; times < 2; ++times) {
          next(rank, message);
          const auto begin = std::chrono::steady_clock::now();
          try {
            (void)model.generate(request);
            ADD_FAILURE() << plan << ": nothing was thrown for message " << message << " of rank "
                          << rank;
          } catch (const Error& e) {
            const std::string said = e.what();
            EXPECT_EQ(e.code(), ErrorCode::memory) << said;
            EXPECT_TRUE(said.ends_with(Fault::kSaid)) << plan << ": " << said;
            EXPECT_TRUE(rank == 0 || said.starts_with("rank " + std::to_string(rank) + ", which "))
                << plan << ": " << said;
          }
          EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << plan;
        }
        next(-1, 0);
        is_good();
      }
  };
  on_processes(ranks, body, faulty);
}

TEST(Alone, AStageThatFailsEndsAll) { expect_that_all_end("pipefusion=2", 2); }
TEST(Alone, AStageOrADecoderThatFailsEndsAll) { expect_that_all_end("pipefusion=2,vae=+1", 3); }
TEST(Alone, ABandThatFailsEndsAll) { expect_that_all_end("cfg=2,vae=2", 2); }
TEST(Alone, ARankOfUlyssesThatFailsEndsAll) { expect_that_all_end("ulysses=2", 2); }
TEST(Alone, ARankOfARingThatFailsEndsAll) { expect_that_all_end("ring=2", 2); }
TEST(Alone, ARankOfTensorParallelismThatFailsEndsAll) { expect_that_all_end("tensor=2", 2); }
TEST(Alone, ARankWithExpertsThatFailsEndsAll) { expect_that_all_end("expert=2", 2); }
TEST(Alone, ARankWithStaleExpertsThatFailsEndsAll) {
  expect_that_all_end("expert=2,schedule=interweaved", 2);
}
TEST(Alone, ARankOfTheFusedOperatorThatFailsEndsAll) {
  setenv("TESSERA_HEAP", "messages", 1);  // forces messages
  expect_that_all_end("expert=2,moe=fused", 2);
  unsetenv("TESSERA_HEAP");
}

TEST(Alone, ARankThatSharesTextEncodersAndFailsEndsAll) {
  expect_that_all_end("shard=2", 2, golden::kVideoModel, waves());
}
TEST(Alone, TheRankThatSendsTextsAndFailsEndsAll) {
  expect_that_all_end("cfg=2", 2, golden::kVideoModel, waves());
}

// Rank 0 fails alone before an encoder of both ranks.
TEST(Alone, ACallerThatFailsBetweenEncodersEndsAll) {
  on_processes(2, [&](const Processes& processes) {
    const Model model = Model::open(golden::kVideoModel, planned("shard=2", &processes));
    RunControl control;
    control.on_progress = [](const Progress& progress) {
      if (progress.phase == Phase::encode) fail(ErrorCode::model, "the caller's own reason");
    };
    for (int i = 0; i < 2; ++i)
      expect_throws([&] { (void)model.generate(waves(), control); }, "the caller's own reason");
    EXPECT_NO_THROW((void)model.generate(waves()));
  });
}

// Only the last stage sees NaN from its blocks.
TEST(Alone, AStageThatGivesNoNumbersEndsAll) {
  const Scratch scratch;
  const std::string folder = spoilt(scratch, "shapes", "transformer/model.safetensors",
                                    "blocks.7.attn.out_proj.bias", 0, 1);
  on_processes(2, [&](const Processes& processes) {
    const Model broken = Model::open(folder, planned("pipefusion=2", &processes));
    for (int i = 0; i < 2; ++i)
      expect_throws([&] { (void)broken.generate(stars()); }, "rank 1, which computes: step 1 of 3");
    const Model good = Model::open("shapes", planned("pipefusion=2", &processes));
    EXPECT_NO_THROW((void)good.generate(stars()));
  });
}

TEST(Alone, InputsThatOneRankCannotReadEndAll) {
  const Scratch scratch;
  const std::string inputs = scratch / "in.safetensors";
  load::write_safetensors(
      inputs, {{"input_ids", tensor::Tensor::from(std::vector<int32_t>{5, 17, 3, 8}, {1, 4})}});
  on_processes(2, [&](const Processes& processes) {
    const Model model = Model::open("tasks-a", planned("expert=2", &processes));
    ForwardRequest request;
    request.component = ModelPart::model;
    for (int i = 0; i < 2; ++i) {
      request.inputs = processes.rank() == 1 ? scratch / "none.safetensors" : inputs;
      expect_throws([&] { (void)model.forward(request); }, "rank 1, which compares the run: ");
    }
    request.inputs = inputs;
    EXPECT_NO_THROW((void)model.forward(request));
  });
}

}  // namespace
}  // namespace tessera
