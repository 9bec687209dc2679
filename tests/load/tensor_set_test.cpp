#include "load/tensor_set.h"

#include <gtest/gtest.h>

#include "load/weights_file.h"
#include "scratch_folder.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor ones(int64_t n) {
  return Tensor::from(std::span<const float>(std::vector<float>(size_t(n), 1.0f)), {n});
}

void write_shards(const ScratchFolder& folder) {
  write_safetensors(folder.path("model-1.safetensors"), {{"a", ones(2)}, {"b", ones(3)}});
  write_safetensors(folder.path("model-2.safetensors"), {{"c", ones(4)}});
}

std::string index_of(const std::string& entries) { return "{\"weight_map\":{" + entries + "}}"; }

const char* const kGood =
    R"("a":"model-1.safetensors","b":"model-1.safetensors","c":"model-2.safetensors")";

}  // namespace

TEST(TensorSet, ReadsShards) {
  const ScratchFolder folder;
  write_shards(folder);
  folder.write("model.safetensors.index.json", index_of(kGood));
  const TensorSet set = open_component(folder.path());
  EXPECT_EQ(set.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(set.get("c").elements(), 4);
  EXPECT_EQ(set.files().size(), 2u);
  EXPECT_EQ(set.bytes(), 36);
  expect_says(model_error([&] { set.get("d"); }), "'d'");
}

TEST(TensorSet, OfSeveralSetsTakesTheOneThatTheLibraryTakes) {
  const ScratchFolder folder;
  const auto one = [&](const char* name, int64_t n) {
    write_safetensors(folder.path(name), {{"a", ones(n)}});
  };
  const auto index = [&](const char* name, const char* shard) {
    folder.write(name, index_of("\"a\":\"" + std::string(shard) + "\""));
  };
  const auto opened = [&](Library library) { return open_component(folder.path(), "", library); };
  one("model.safetensors", 1);
  EXPECT_EQ(opened(Library::transformers).choice(), "");
  one("shard.safetensors", 2);
  index("model.safetensors.index.json", "shard.safetensors");
  EXPECT_EQ(opened(Library::transformers).get("a").elements(), 1);
  expect_says(opened(Library::transformers).choice(),
              "model.safetensors is read, as transformers does, and not the shards of "
              "model.safetensors.index.json");
  EXPECT_EQ(opened(Library::diffusers).get("a").elements(), 2);
  expect_says(opened(Library::diffusers).choice(),
              "the shards of model.safetensors.index.json are read, as diffusers does, and not "
              "model.safetensors");
  one("diffusion_pytorch_model.safetensors", 3);
  EXPECT_EQ(opened(Library::transformers).get("a").elements(), 1);
  EXPECT_EQ(opened(Library::diffusers).get("a").elements(), 3);
  index("diffusion_pytorch_model.safetensors.index.json", "shard.safetensors");
  EXPECT_EQ(opened(Library::diffusers).get("a").elements(), 2);
  // A complete set precedes a set without all shards.
  index("diffusion_pytorch_model.safetensors.index.json", "gone.safetensors");
  EXPECT_EQ(opened(Library::diffusers).get("a").elements(), 3);
  expect_says(opened(Library::diffusers).choice(), "some are missing");
  // A broken index has no effect if unread.
  folder.write("model.safetensors.index.json", "{");
  EXPECT_EQ(opened(Library::transformers).get("a").elements(), 1);
}

TEST(TensorSet, KnowsTheLibraryOfAComponent) {
  Component part;
  EXPECT_EQ(library_of(part), Library::diffusers);
  part.config["model_type"] = "t5";
  EXPECT_EQ(library_of(part), Library::transformers);
  part.library = "diffusers";
  EXPECT_EQ(library_of(part), Library::diffusers);
  part.library = "transformers";
  EXPECT_EQ(library_of(part), Library::transformers);
}

TEST(TensorSet, NamesMissingShards) {
  const ScratchFolder folder;
  write_shards(folder);
  std::filesystem::remove(folder.path("model-2.safetensors"));
  folder.write("model.safetensors.index.json", index_of(kGood));
  const std::string message = model_error([&] { open_component(folder.path()); });
  expect_says(message, "1 of 2 shards are missing: 'model-2.safetensors'");
}

TEST(TensorSet, RefusesShardsOutsideTheFolder) {
  const ScratchFolder folder;
  for (const char* name : {"../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "",
                           "a\\\\b", "a\\u0000b"}) {
    folder.write("model.safetensors.index.json", index_of("\"a\":\"" + std::string(name) + "\""));
    expect_says(model_error([&] { open_component(folder.path()); }), "no plain file name");
  }
}

TEST(TensorSet, RefusesAnIndexThatDoesNotFit) {
  const ScratchFolder folder;
  write_shards(folder);
  auto error_with = [&](const std::string& text) {
    folder.write("model.safetensors.index.json", text);
    return model_error([&] { open_component(folder.path()); });
  };
  expect_says(error_with(index_of(kGood + std::string(R"(,"d":"model-2.safetensors")"))),
              "'d' should stand in");
  expect_says(error_with(index_of(R"("a":"model-1.safetensors")")), "does not place there");
  expect_says(error_with(index_of(R"("a":1)")), "'a'");
  expect_says(error_with(index_of("")), "empty");
  expect_says(error_with("[]"), "weight_map");
  expect_says(error_with("{\"weight_map\":[]}"), "weight_map");
}

TEST(TensorSet, TakesPlainFilesBeforeVariants) {
  const ScratchFolder folder;
  write_safetensors(folder.path("diffusion_pytorch_model.fp16.safetensors"), {{"half", ones(1)}});
  EXPECT_TRUE(open_component(folder.path()).has("half"));
  write_safetensors(folder.path("diffusion_pytorch_model.bf16.safetensors"), {{"brain", ones(1)}});
  EXPECT_TRUE(open_component(folder.path()).has("brain"));
  write_safetensors(folder.path("model.safetensors"), {{"plain", ones(1)}});
  EXPECT_TRUE(open_component(folder.path()).has("plain"));
  EXPECT_TRUE(open_component(folder.path(), "fp16").has("half"));
  expect_says(model_error([&] { open_component(folder.path(), "int4"); }), "variant 'int4'");
}

TEST(TensorSet, ReadsTheIndexOfAVariant) {
  const ScratchFolder folder;
  write_safetensors(folder.path("model.fp16-1.safetensors"), {{"a", ones(2)}});
  folder.write("model.safetensors.index.fp16.json", index_of(R"("a":"model.fp16-1.safetensors")"));
  EXPECT_TRUE(open_component(folder.path()).has("a"));
  // The plain index came with all of the descriptions, its shards did not.
  folder.write("model.safetensors.index.json", index_of(kGood));
  EXPECT_TRUE(open_component(folder.path()).has("a"));
  write_shards(folder);
  EXPECT_TRUE(open_component(folder.path()).has("c"));
  const auto refusal_without = [&](const char* shard) {
    std::filesystem::remove(folder.path(shard));
    return model_error([&] { open_component(folder.path()); });
  };
  std::filesystem::remove(folder.path("model.fp16-1.safetensors"));
  expect_says(refusal_without("model-2.safetensors"), "1 of 2 shards are missing: 'model-2");
  expect_says(refusal_without("model-1.safetensors"), "1 of 1 shards are missing: 'model.fp16-1");
}

TEST(TensorSet, SaysWhatToDoWithoutWeights) {
  const ScratchFolder folder;
  expect_says(model_error([&] { open_component(folder.path()); }), "download the weights");
  folder.write("pytorch_model.bin", "x");
  expect_says(model_error([&] { open_component(folder.path()); }), "convert them");
  expect_says(model_error([&] { open_component(folder.path("pytorch_model.bin")); }), "is a file");
  const ScratchFolder other;
  other.write("model-Q8_0.gguf", "x");
  expect_says(model_error([&] { open_component(other.path()); }), "GGUF files only");
  folder.write("flux1-dev.safetensors", "x");
  expect_says(model_error([&] { open_component(folder.path()); }), "'flux1-dev.safetensors'");
  expect_says(model_error([&] { open_component(folder.path("none")); }), "does not exist");
}

TEST(TensorSet, KnowsADescriptionThatCameAlone) {
  const ScratchFolder folder;
  folder.write("config.json", "{}");
  EXPECT_FALSE(has_weights(folder.path()));
  EXPECT_FALSE(has_weights(folder.path("none")));
  EXPECT_EQ(announced_bytes(folder.path()), 0);
  for (const char* index : {"[]", "{}", R"({"metadata": {"total_size": "many"}})"}) {
    folder.write("model.safetensors.index.json", index);
    EXPECT_EQ(announced_bytes(folder.path()), 0) << index;
  }
  folder.write("model.safetensors.index.json", R"({"metadata": {"total_size": 9989150328}})");
  EXPECT_EQ(announced_bytes(folder.path()), 9989150328);
  EXPECT_FALSE(has_weights(folder.path()));
  folder.write("model-00001-of-00002.safetensors", "x");
  EXPECT_TRUE(has_weights(folder.path()));
}

TEST(TensorSet, RefusesTheSameNameInTwoFiles) {
  const ScratchFolder folder;
  write_safetensors(folder.path("1"), {{"a", ones(2)}});
  write_safetensors(folder.path("2"), {{"a", ones(2)}});
  expect_says(model_error([&] {
                TensorSet({SafetensorsFile(folder.path("1")), SafetensorsFile(folder.path("2"))});
              }),
              "'a' stands in both");
}

TEST(TensorSet, QuantisedWeightsAreRefusedByTheirMethod) {
  const ScratchFolder folder;
  write_safetensors(folder.path("model.safetensors"), {{"a", Tensor::zeros({1}, DType::f32)}});
  Component part{"transformer", "diffusers", "FluxTransformer2DModel", folder.path(), {}};
  part.config = {{"quantization_config", nullptr}};
  EXPECT_TRUE(open_weights(part).has("a"));
  part.config = {
      {"quantization_config", {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}}}};
  const std::string message = model_error([&] { open_weights(part); });
  expect_says(message, folder.path() + "/config.json");
  expect_says(message, "quantised by 'bitsandbytes'");
  expect_says(message, "bf16, f16 or f32");
  part.config = {{"quantization_config", true}};
  expect_says(model_error([&] { open_weights(part); }), "weights are quantised ('quant");
}

}  // namespace tessera::load
