#include <fstream>

#include "load/fused_experts.h"
#include "load/gguf_image.h"
#include "load/name_map.h"
#include "load/name_tables.h"
#include "load/tensor_set.h"
#include "test_paths.h"
#include "whole/golden.h"

// Language models from GGUF, by the names of llama.cpp's converters, against their folders.
namespace tessera {
namespace {

namespace fs = std::filesystem;
using golden::Scratch;
using load::GgufImage;

// The expert that a tensor belongs to, or -1.
int64_t expert_of(const std::string& name) {
  const size_t at = name.find(".experts.");
  return at == std::string::npos ? -1 : std::stoll(name.substr(at + 9));
}

std::string bytes_of(const load::TensorSet& set, const std::string& name) {
  std::string bytes(static_cast<size_t>(set.entry(name).bytes()), '\0');
  set.file(name).read(name, reinterpret_cast<std::byte*>(bytes.data()));
  return bytes;
}

// A folder's weights (f32 or bf16) in one GGUF file, experts stacked; `apart`: gate and up in two
// tensors.
std::string as_gguf(const std::string& folder, const std::string& type, bool apart = false) {
  const load::TensorSet set = load::with_single_experts(load::open_component(folder));
  const load::NameTable& table = *load::name_table_of(type);
  const load::NameMap map(table, {});
  std::map<std::string, std::map<std::pair<int64_t, std::string>, std::string>> stacks;
  for (const std::string& name : set.names()) {
    std::string theirs = map.file_name(name);
    const size_t both = theirs.find("gate_up_exps");
    if (apart && both != std::string::npos)
      theirs.replace(both, 12, name.ends_with("up_proj.weight") ? "up_exps" : "gate_exps");
    EXPECT_FALSE(theirs.empty()) << name;
    stacks[theirs][{expert_of(name), name}] = name;
  }
  GgufImage image;
  image.architecture(table.architectures.front());
  for (const auto& [theirs, parts] : stacks) {
    std::string bytes;
    for (const auto& [key, name] : parts) bytes += bytes_of(set, name);
    std::vector<int64_t> sizes = set.entry(parts.begin()->second).sizes;
    if (const int64_t last = parts.rbegin()->first.first; last >= 0) {
      sizes[0] *= std::ssize(parts) / (last + 1);
      sizes.insert(sizes.begin(), last + 1);
    }
    const uint32_t number = set.entry(parts.begin()->second).dtype == "BF16" ? 30 : 0;
    image.tensor(theirs, sizes, number, bytes);
  }
  return image.bytes();
}

std::vector<float> logits(const std::string& model, const std::string& file) {
  const Scratch scratch;
  const std::vector<int32_t> ids{3, 9, 1, 27, 14, 8, 30, 2};
  const std::map<std::string, tensor::Tensor> inputs{
      {"input_ids", tensor::Tensor::from(std::span<const int32_t>(ids), {std::ssize(ids)})}};
  load::write_safetensors(scratch / "in.safetensors", inputs);
  ForwardRequest request;
  request.component = ModelPart::model;
  request.inputs = scratch / "in.safetensors";
  request.outputs = scratch / "out.safetensors";
  Model::open(model, golden::options(Precision::f32), {}, {.transformer = file}).forward(request);
  return load::SafetensorsFile(request.outputs).get("logits").to_floats();
}

// The folder's numbers, bit by bit, from a folder without weights and a GGUF file.
void check(const std::string& name, const std::string& type, bool apart = false) {
  SCOPED_TRACE(name);
  const std::string folder = std::string(TESSERA_TEST_DATA) + "/moe/" + name + "/model";
  const Scratch scratch;
  fs::create_directory(scratch / "bare");
  for (const auto& item : fs::directory_iterator(folder))
    if (item.path().extension() != ".safetensors")
      fs::copy_file(item.path(), scratch / ("bare/" + item.path().filename().string()));
  std::ofstream(scratch / "model.gguf", std::ios::binary) << as_gguf(folder, type, apart);
  EXPECT_EQ(logits(scratch / "bare", scratch / "model.gguf"), logits(folder, ""));
}

TEST(LanguageFileGolden, LladaMoe) { check("llada_moe", "LLaDAMoEModelLM"); }
TEST(LanguageFileGolden, Llada2) { check("llada2", "llada2_moe"); }
TEST(LanguageFileGolden, DiffusionGemma) { check("diffusion_gemma_canvas256", "diffusion_gemma"); }
TEST(LanguageFileGolden, GateAndUpApart) {
  check("diffusion_gemma_canvas256", "diffusion_gemma", true);
}

// Families of llama.cpp share names: the file's architecture tells them apart.
TEST(LanguageFileGolden, AnotherFamilyIsRefused) {
  const std::string data = std::string(TESSERA_TEST_DATA) + "/moe/";
  const Scratch scratch;
  std::ofstream(scratch / "model.gguf", std::ios::binary)
      << as_gguf(data + "llada2/model", "llada2_moe");
  try {
    logits(data + "llada_moe/model", scratch / "model.gguf");
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    EXPECT_NE(std::string(error.what()).find("weights of a LLaDA2 model"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera
