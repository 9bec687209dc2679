#include "mutation/weight_files.h"

#include <fstream>
#include <map>

#include "load/fused_experts.h"
#include "load/gguf_metadata.h"
#include "load/gguf_model.h"
#include "load/name_tables.h"
#include "test_paths.h"

namespace tessera::mutation {
namespace {

namespace fs = std::filesystem;
using load::GgufType;

// Copies all files but the weights in `part`.
void copy_without(const fs::path& from, const fs::path& to, const fs::path& part) {
  for (const auto& item : fs::recursive_directory_iterator(from)) {
    const fs::path name = fs::relative(item.path(), from);
    const bool weights = item.path().extension() == ".safetensors" &&
                         item.path().parent_path() == (from / part).lexically_normal();
    if (!item.is_regular_file() || weights) continue;
    fs::create_directories((to / name).parent_path());
    fs::copy_file(item.path(), to / name);
  }
}

// Alternates between the two types of blocks with their own products.
GgufType mixed(const std::string& name) {
  return name.size() % 2 == 0 ? GgufType::q4_0 : GgufType::q8_0;
}

std::map<std::string, tensor::Tensor> prefixed(const load::TensorSet& set,
                                               const std::string& prefix) {
  std::map<std::string, tensor::Tensor> tensors;
  for (const std::string& name : set.names()) tensors[prefix + name] = set.get(name);
  return tensors;
}

}  // namespace

std::vector<FolderWithFile> folders_with_files(const fs::path& scratch) {
  const fs::path scenes = fs::path(TESSERA_MODELS_DIR) / "scenes",
                 llada = fs::path(TESSERA_TEST_DATA) / "moe/llada_moe/model";
  const load::TensorSet image = load::open_component((scenes / "transformer").string()),
                        text = load::with_single_experts(load::open_component(llada.string()));
  const std::vector<FolderWithFile> made = {{scratch / "image-gguf", "weights.gguf"},
                                            {scratch / "text-gguf", "weights.gguf"},
                                            {scratch / "image-file", "weights.safetensors"},
                                            {scratch / "text-alone", kAlone}};
  copy_without(scenes, made[0].folder, "transformer");
  copy_without(llada, made[1].folder, "");
  copy_without(scenes, made[2].folder, "transformer");
  std::ofstream(made[0].folder / made[0].file, std::ios::binary)
      << load::gguf_of(image, nullptr, mixed);
  std::ofstream(made[1].folder / made[1].file, std::ios::binary)
      << load::gguf_of(text, load::name_table_of("LLaDAMoEModelLM"), mixed);
  load::write_safetensors((made[2].folder / made[2].file).string(),
                          prefixed(image, "model.diffusion_model."));
  const std::string tasks = (fs::path(TESSERA_MODELS_DIR) / "tasks-a").string();
  fs::create_directories(made[3].folder);
  std::ofstream(made[3].folder / made[3].file, std::ios::binary) << load::gguf_of(
      load::with_single_experts(load::open_component(tasks)),
      load::name_table_of("LLaDAMoEModelLM"), mixed, false, [&](load::GgufImage& file) {
        load::write_keys(load::keys_of_folder(tasks, "llada-moe"), file);
      });
  return made;
}

std::string model_in(const fs::path& folder, const std::string& file) {
  return (file == kAlone ? folder / file : folder).string();
}

WeightFiles files_in(const fs::path& folder, const std::string& file) {
  WeightFiles files;
  if (!file.empty() && file != kAlone) files.transformer = (folder / file).string();
  return files;
}

}  // namespace tessera::mutation
