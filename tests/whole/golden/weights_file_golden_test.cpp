#include <fstream>
#include <set>

#include "base/json.h"
#include "load/name_map.h"
#include "load/name_tables.h"
#include "load/tensor_set.h"
#include "models/registry.h"
#include "whole/diffusers_golden.h"

// Transformers from files with the makers' names, and from GGUF, against diffusers.
namespace tessera {
namespace {

namespace fs = std::filesystem;
using base::Json;
using golden::Scratch;
using load::SafetensorsFile;
using load::TensorEntry;
using tensor::Tensor;

const std::string kShared =
    std::string(TESSERA_TEST_DATA) + "/../../../shared/golden/features/files/";

// Bytes of a tensor with the halves of its rows swapped.
std::string swapped(const std::string& bytes) {
  return bytes.substr(bytes.size() / 2) + bytes.substr(0, bytes.size() / 2);
}

// The weights of a folder in a single file, with the maker's names.
void write_original(const std::string& folder, const std::string& type, const std::string& prefix,
                    const std::string& path) {
  const load::TensorSet set = load::open_component(folder);
  const load::NameTable& table = *load::name_table_of(type);
  std::vector<std::string> theirs;
  for (int pass = 0; pass < 2; ++pass) {  // the second pass knows the last block
    const load::NameMap map(table, theirs);
    theirs.clear();
    for (const std::string& name : set.names()) {
      const std::string other = map.file_name(name);
      theirs.push_back(other.empty() ? name : other);
    }
  }
  const load::NameMap map(table, theirs);
  std::map<std::string, std::map<int64_t, std::string>> parts;  // parts, by their first byte
  const std::vector<std::string> own = set.names();
  for (size_t i = 0; i < theirs.size(); ++i) {
    const std::string& name = own[i];
    const auto found = map.model_tensors(theirs[i], {"U8", {420, 1}, 0, 420}, "test");
    parts[theirs[i]][found.empty() ? 0 : found.at(name).begin] = name;
  }
  std::vector<load::PlannedTensor> planned;
  for (const auto& [other, names] : parts) {
    const TensorEntry& first = set.entry(names.begin()->second);
    std::vector<int64_t> sizes = first.sizes;
    std::string bytes;
    int64_t rows = 0;
    for (const auto& [at, name] : names) {
      std::string read(static_cast<size_t>(set.entry(name).bytes()), '\0');
      set.file(name).read(name, reinterpret_cast<std::byte*>(read.data()));
      bytes += read;
      rows += sizes.empty() ? 0 : set.entry(name).sizes[0];
    }
    if (other == "style_embedder.weight") {  // with a second style, as in HunyuanDiT's files
      bytes += bytes;
      rows *= 2;
    }
    if (!sizes.empty()) sizes[0] = rows;
    const auto found = map.model_tensors(other, {first.dtype, sizes, 0, std::ssize(bytes)}, "test");
    if (!found.empty() && found.begin()->second.halves_swapped) bytes = swapped(bytes);
    planned.push_back({prefix + other, first.dtype, sizes, std::ssize(bytes), [bytes] {
                         Tensor x = Tensor::empty({std::ssize(bytes)}, tensor::DType::u8);
                         std::copy(bytes.begin(), bytes.end(), x.data<char>());
                         return x;
                       }});
  }
  load::write_safetensors(path, planned);
}

// Tensor `out` of a forward pass of a config's transformer.
std::vector<float> forward(const std::string& config, const std::string& file,
                           const std::string& inputs, const std::string& prefix,
                           Precision precision) {
  const Scratch scratch;
  fs::create_directory(scratch / "model");
  fs::copy_file(config, scratch / "model/config.json");
  const SafetensorsFile io(inputs);
  std::map<std::string, Tensor> tensors;
  for (const auto& [key, entry] : io.entries())
    if (key.starts_with(prefix)) tensors[key.substr(prefix.size())] = io.get(key);
  load::write_safetensors(scratch / "in.safetensors", tensors);
  ForwardRequest request;
  request.inputs = scratch / "in.safetensors";
  request.outputs = scratch / "out.safetensors";
  Model::open(scratch / "model", golden::options(precision), {}, {.transformer = file})
      .forward(request);
  return SafetensorsFile(request.outputs).get("out").to_floats();
}

TEST(WeightsFileGolden, TheMakersNamesGiveTheForwardPassOfDiffusers) {
  int cases = 0;
  for (const std::string& folder : golden::diffusers_cases("io_transformer.safetensors", 6)) {
    const std::string part = folder + "/model/transformer", config = part + "/config.json";
    const std::string type = base::read_json(config).at("_class_name");
    if (!load::name_table_of(type) || !load::has_weights(part)) continue;
    SCOPED_TRACE(folder);
    const Scratch scratch;
    write_original(part, type, cases++ % 2 == 0 ? "model.diffusion_model." : "",
                   scratch / "original.safetensors");
    const std::string inputs = folder + "/io_transformer.safetensors";
    EXPECT_LT(golden::l2_error(forward(config, scratch / "original.safetensors", inputs, "fwd0.in.",
                                       Precision::f32),
                               SafetensorsFile(inputs).get("fwd0.out").to_floats()),
              1e-4);
  }
  EXPECT_GE(cases, 5);
}

Json shared_cases(const std::string& kind) {
  Json found = Json::array();
  const Json all = base::read_json(kShared + "case.json");
  for (const Json& one : all.at("cases"))
    if (one.at("kind") == kind) found.push_back(one);
  return found;
}

bool runs(const std::string& type) {
  return std::ranges::any_of(models::pipelines(), [&](const auto& f) { return type == f.type; });
}

TEST(WeightsFileGolden, EveryFileOfTheReferenceSet) {
  if (!fs::exists(kShared))
    GTEST_SKIP() << "the reference files (GGUF, float8, single files) are not beside this tree";
  std::set<std::string> absent;
  int compared = 0;
  const Json cases = shared_cases("transformer");
  for (const Json& one : cases) {
    const std::string file = one.at("file");
    SCOPED_TRACE(file);
    const std::string base = kShared + one.at("base_model").get<std::string>();
    const std::string config = one.at("config").is_string()
                                   ? kShared + one.at("config").get<std::string>()
                                   : base + "/transformer/config.json";
    const std::string type = base::read_json(config).at("_class_name");
    if (!runs(type)) {
      absent.insert(type);
      continue;
    }
    const auto expected =
        SafetensorsFile(kShared + "io.safetensors").get(one.at("output")).to_floats();
    const std::string inputs = kShared + one.at("inputs").get<std::string>();
    const auto error = [&](Precision precision) {
      return golden::l2_error(forward(config, kShared + file, inputs, one.at("prefix"), precision),
                              expected);
    };
    EXPECT_LT(error(Precision::f32), 1e-4);
    EXPECT_LT(error(Precision::bf16), 2e-2);
    ++compared;
  }
  EXPECT_GE(compared, 4);
  if (!absent.empty()) GTEST_SKIP() << "no network here for " << *absent.begin();
}

TEST(WeightsFileGolden, HostileFilesOfTheReferenceSetAreRefused) {
  if (!fs::exists(kShared)) GTEST_SKIP() << "the reference files are not beside this tree";
  int refused = 0;
  const Json cases = shared_cases("hostile");
  for (const Json& one : cases) {
    const std::string file = one.at("file");
    SCOPED_TRACE(file);
    const std::string model = one.value("base", "flux_dev");
    const std::string base = kShared + "../../diffusers/" + model;
    const std::string config = base + "/model/transformer/config.json";
    if (!runs(base::read_json(config).at("_class_name"))) continue;
    try {
      forward(config, kShared + file, base + "/io_transformer.safetensors", "fwd0.in.",
              Precision::f32);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.code(), ErrorCode::model) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_NE(message.find(fs::path(file).filename().string()), std::string::npos) << message;
      for (const std::string& name : one.value("message_names", std::vector<std::string>()))
        EXPECT_NE(message.find(name), std::string::npos) << name << ": " << message;
      ++refused;
    }
  }
  EXPECT_GE(refused, 50);
}

}  // namespace
}  // namespace tessera
