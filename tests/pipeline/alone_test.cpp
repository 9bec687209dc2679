// Values that are no numbers on one rank alone: all end with that, not by the deadline, and do the
// next request.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "engine/golden.h"
#include "pipeline/on_processes.h"
#include "tessera/engine.h"
#include "test_paths.h"

namespace tessera {
namespace {

using golden::Scratch;

RunOptions planned(const std::string& plan, const Processes* processes) {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan(plan);
  options.processes = processes;
  return options;
}

// A copy of a model with rows of a tensor that are no numbers.
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

// On threads, and on what would be processes.
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
