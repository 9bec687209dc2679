#include "whole/diffusers_golden.h"

namespace tessera {
namespace {

using golden::Scratch;
using load::SafetensorsFile;
using tensor::Tensor;

// Runs a golden forward pass; what it does not store is that of the first.
SafetensorsFile run(const std::string& folder, const SafetensorsFile& io, const std::string& name,
                    Precision precision, const Scratch& scratch) {
  std::map<std::string, Tensor> inputs;
  for (const std::string& from : {std::string("fwd0"), name}) {
    if (from != name && io.has(name + ".in.hidden_states")) continue;
    const std::string prefix = from + ".in.";
    for (const auto& [key, entry] : io.entries())
      if (key.starts_with(prefix)) inputs[key.substr(prefix.size())] = io.get(key);
  }
  load::write_safetensors(scratch / "in.safetensors", inputs);
  ForwardRequest request;
  request.inputs = scratch / "in.safetensors";
  request.outputs = scratch / (name + ".safetensors");
  request.trace = true;
  Model::open(folder + "/model/transformer", golden::options(precision)).forward(request);
  return SafetensorsFile(request.outputs);
}

TEST(TransformerGolden, EveryBlockIsDiffusersInF32) {
  const auto folders = golden::diffusers_cases("io_transformer.safetensors", 6);
  EXPECT_GE(folders.size(), 6u);
  for (const std::string& folder : folders) {
    const SafetensorsFile io(folder + "/io_transformer.safetensors");
    for (const std::string name : {"fwd0", "fwd1", "fwd2"}) {
      SCOPED_TRACE(folder + " " + name);
      const Scratch scratch;
      const SafetensorsFile out = run(folder, io, name, Precision::f32, scratch);
      EXPECT_EQ(out.get("out").shape(), io.get(name + ".out").shape());
      int compared = 0;
      for (const auto& [key, entry] : io.entries()) {
        const bool block =
            key.starts_with(name + ".block.") || key.starts_with(name + ".single_block.");
        if (!block && key != name + ".out") continue;
        const std::string mine = key.substr(name.size() + 1);
        ASSERT_TRUE(out.has(mine)) << mine;
        EXPECT_LT(golden::max_error(out.get(mine).to_floats(), io.get(key).to_floats()), 1e-4)
            << mine;
        ++compared;
      }
      EXPECT_GE(compared, name == "fwd0" ? 3 : 1);
    }
  }
}

TEST(TransformerGolden, StaysCloseInBf16) {
  for (const std::string& folder : golden::diffusers_cases("io_transformer.safetensors", 6)) {
    const SafetensorsFile io(folder + "/io_transformer.safetensors");
    for (const std::string name : {"fwd0", "fwd1", "fwd2"}) {
      const Scratch scratch;
      const SafetensorsFile out = run(folder, io, name, Precision::bf16, scratch);
      EXPECT_LT(golden::l2_error(out.get("out").to_floats(), io.get(name + ".out").to_floats()),
                3e-2)
          << folder << " " << name;
    }
  }
}

}  // namespace
}  // namespace tessera
