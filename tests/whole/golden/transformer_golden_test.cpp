#include "whole/diffusers_golden.h"

namespace tessera {
namespace {

using golden::Scratch;
using load::SafetensorsFile;
using tensor::Tensor;

// Runs a golden forward pass; missing inputs are taken from the first pass.
SafetensorsFile run(const std::string& folder, const SafetensorsFile& io, const std::string& name,
                    Precision precision, const Scratch& scratch) {
  std::map<std::string, Tensor> inputs;
  for (const std::string& from : {std::string("fwd0"), name}) {
    const bool whole = io.has(name + ".in.hidden_states") || io.has(name + ".in.x");
    if (from != name && whole) continue;
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

// The prediction of a golden pass for the noise tokens alone, without tokens after them.
Tensor predicted(const SafetensorsFile& io, const std::string& name, const SafetensorsFile& out) {
  const Tensor want = io.get(name + ".out");
  if (want.rank() != 3) return want;
  return want.slice(1, 0, out.get("out").size(1)).contiguous();
}

// The reference tensor of a name. A joint stream has the reference's order (Z-Image: text last;
// FLUX.2: text first).
Tensor found(const SafetensorsFile& out, const std::string& name, bool text_behind,
             const tensor::Shape& wanted) {
  const Tensor body = out.get(name);
  if (body.shape() == wanted || !out.has(name + ".context")) return body;
  const Tensor text = out.get(name + ".context");
  Tensor both = Tensor::empty(wanted, body.dtype());
  const int64_t first = text_behind ? 0 : text.size(1);
  tensor::copy_into(both.slice(1, first, first + body.size(1)), body);
  const int64_t at = text_behind ? body.size(1) : 0;
  tensor::copy_into(both.slice(1, at, at + text.size(1)), text);
  return both;
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
      const Tensor want = predicted(io, name, out);
      EXPECT_EQ(out.get("out").shape(), want.shape());
      EXPECT_LT(golden::max_error(out.get("out").to_floats(), want.to_floats()), 1e-4);
      int compared = 0;
      for (const auto& [key, entry] : io.entries()) {
        const bool block = key.starts_with(name + ".block.") ||
                           key.starts_with(name + ".single_block.") ||
                           key.starts_with(name + ".noise_refiner.");
        const bool inside = key.find(".attn") != std::string::npos || key.ends_with(".mlp");
        if (!block || inside) continue;
        const std::string mine = key.substr(name.size() + 1);
        ASSERT_TRUE(out.has(mine)) << mine;
        const Tensor made = found(out, mine, io.has("fwd0.in.x"), io.get(key).shape());
        EXPECT_LT(golden::max_error(made.to_floats(), io.get(key).to_floats()), 1e-4) << mine;
        ++compared;
      }
      EXPECT_GE(compared, name == "fwd0" ? 2 : 0);
    }
  }
}

TEST(TransformerGolden, StaysCloseInBf16) {
  for (const std::string& folder : golden::diffusers_cases("io_transformer.safetensors", 6)) {
    const SafetensorsFile io(folder + "/io_transformer.safetensors");
    for (const std::string name : {"fwd0", "fwd1", "fwd2"}) {
      const Scratch scratch;
      const SafetensorsFile out = run(folder, io, name, Precision::bf16, scratch);
      EXPECT_LT(golden::l2_error(out.get("out").to_floats(), predicted(io, name, out).to_floats()),
                3e-2)
          << folder << " " << name;
    }
  }
}

}  // namespace
}  // namespace tessera
