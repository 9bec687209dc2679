#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

using golden::Scratch;
namespace fs = std::filesystem;

std::string refusal(const std::string& folder, ErrorCode code) {
  try {
    GenerateRequest request;
    request.classes = {"1"};
    request.decode = false;
    request.steps = 1;
    Model::open(folder, golden::options(Precision::f32)).generate(request);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "was accepted";
}

// A copy of a golden model with changed tensors.
std::string altered(const Scratch& scratch,
                    const std::function<void(std::map<std::string, tensor::Tensor>&)>& change) {
  const std::string from = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";
  fs::create_directories(scratch / "m");
  fs::copy_file(from + "/config.json", scratch / "m/config.json");
  const load::SafetensorsFile file(from + "/model.safetensors");
  std::map<std::string, tensor::Tensor> tensors;
  for (const auto& [name, entry] : file.entries()) tensors[name] = file.get(name);
  change(tensors);
  load::write_safetensors(scratch / "m/model.safetensors", tensors);
  return scratch / "m";
}

TEST(ModelState, NamesAllThatIsMissingExtraAndMisshaped) {
  const Scratch scratch;
  const std::string folder = altered(scratch, [](auto& tensors) {
    tensors.erase("blocks.0.moe.gate.weight");
    tensors.erase("pos_embed");
    tensors["surplus"] = tensor::Tensor::zeros({1}, tensor::DType::f32);
    tensors["blocks.1.moe.gate.weight"] = tensor::Tensor::zeros({2, 2}, tensor::DType::f32);
  });
  const std::string message = refusal(folder, ErrorCode::model);
  for (const char* name :
       {"blocks.0.moe.gate.weight", "pos_embed", "surplus", "blocks.1.moe.gate.weight"})
    EXPECT_NE(message.find(name), std::string::npos) << message;
}

TEST(ModelState, RefusesADamagedFile) {
  const Scratch scratch;
  const std::string folder = altered(scratch, [](auto&) {});
  fs::resize_file(folder + "/model.safetensors", fs::file_size(folder + "/model.safetensors") / 2);
  EXPECT_NE(refusal(folder, ErrorCode::model).find("model.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace tessera
