#include "load/described_by_shapes.h"

#include <charconv>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"

namespace tessera::load {
namespace {

using base::Json;

class Shapes {
 public:
  Shapes(const TensorSet& tensors, std::string type, const std::string& file)
      : tensors_(tensors), type_(std::move(type)), file_(file) {}

  bool has(const std::string& name) const { return tensors_.has(name); }

  int64_t size(const std::string& name, size_t axis) const {
    const std::string file_name = tensors_.file_name(name);
    require(tensors_.has(name) && axis < tensors_.entry(name).sizes.size(), ErrorCode::model,
            "{}: there is no tensor {} that says how large this {} is; expected the weights of a "
            "whole transformer",
            file_, base::printable(file_name.empty() ? name : file_name), type_);
    return tensors_.entry(name).sizes[axis];
  }

  // Numbers between a prefix and a suffix in the names.
  std::set<int64_t> numbers(std::string_view before, std::string_view behind) const {
    std::set<int64_t> values;
    for (const std::string& name : tensors_.names()) {
      base::check_stop();
      if (!name.starts_with(before) || !name.ends_with(behind)) continue;
      int64_t number = 0;
      const char* const from = name.data() + before.size();
      const auto [end, error] = std::from_chars(from, name.data() + name.size(), number);
      if (error == std::errc() && end + behind.size() == name.data() + name.size())
        values.insert(number);
    }
    return values;
  }
  int64_t count(std::string_view before, std::string_view behind) const {
    return std::ssize(numbers(before, behind));
  }

  [[noreturn]] void unknown(const std::string& problem) const {
    fail(ErrorCode::model,
         "{}: {}; the folder holds no transformer/config.json, and of this model the file does not "
         "say all: download that too",
         file_, problem);
  }

  int64_t published_head(int64_t head, int64_t expected) const {
    if (head != expected)
      unknown(fmt::format("its heads have {} channels, those of the published {} {}", head, type_,
                          expected));
    return head;
  }

 private:
  const TensorSet& tensors_;
  const std::string type_;
  const std::string& file_;
};

Json flux(const Shapes& s) {
  const int64_t hidden = s.size("x_embedder.weight", 0);
  const int64_t head =
      s.published_head(s.size("single_transformer_blocks.0.attn.norm_q.weight", 0), 128);
  return {{"num_layers", s.count("transformer_blocks.", ".attn.norm_q.weight")},
          {"num_single_layers", s.count("single_transformer_blocks.", ".attn.norm_q.weight")},
          {"num_attention_heads", hidden / head},
          {"attention_head_dim", head},
          {"in_channels", s.size("x_embedder.weight", 1)},
          {"joint_attention_dim", s.size("context_embedder.weight", 1)},
          {"pooled_projection_dim", s.size("time_text_embed.text_embedder.linear_1.weight", 1)},
          {"guidance_embeds", s.has("time_text_embed.guidance_embedder.linear_1.weight")},
          {"axes_dims_rope", {16, 56, 56}}};
}

Json flux2(const Shapes& s) {
  const int64_t hidden = s.size("x_embedder.weight", 0);
  const int64_t head =
      s.published_head(s.size("single_transformer_blocks.0.attn.norm_q.weight", 0), 128);
  const int64_t out = s.size("single_transformer_blocks.0.attn.to_out.weight", 1);
  return {{"num_layers", s.count("transformer_blocks.", ".attn.norm_q.weight")},
          {"num_single_layers", s.count("single_transformer_blocks.", ".attn.norm_q.weight")},
          {"num_attention_heads", hidden / head},
          {"attention_head_dim", head},
          {"in_channels", s.size("x_embedder.weight", 1)},
          {"joint_attention_dim", s.size("context_embedder.weight", 1)},
          {"timestep_guidance_channels",
           s.size("time_guidance_embed.timestep_embedder.linear_1.weight", 1)},
          {"mlp_ratio", hidden == 0 ? 0.0 : double(out - hidden) / double(hidden)},
          {"guidance_embeds", s.has("time_guidance_embed.guidance_embedder.linear_1.weight")},
          {"axes_dims_rope", {32, 32, 32, 32}},
          {"rope_theta", 2000}};
}

Json sd3(const Shapes& s) {
  constexpr int64_t kHead = 64;
  const int64_t hidden = s.size("pos_embed.proj.weight", 0);
  const int64_t patch = s.size("pos_embed.proj.weight", 2);
  const int64_t places = s.size("pos_embed.pos_embed", 1);
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(double(places))));
  if (hidden % kHead != 0 || side * side != places || patch == 0)
    s.unknown(fmt::format("it has {} channels and {} positions", hidden, places));
  Json config = {
      {"num_layers", s.count("transformer_blocks.", ".attn.to_q.weight")},
      {"num_attention_heads", hidden / kHead},
      {"attention_head_dim", kHead},
      {"caption_projection_dim", hidden},
      {"in_channels", s.size("pos_embed.proj.weight", 1)},
      {"patch_size", patch},
      {"out_channels", s.size("proj_out.weight", 0) / (patch * patch)},
      {"pos_embed_max_size", side},
      {"sample_size", 128},
      {"joint_attention_dim", s.size("context_embedder.weight", 1)},
      {"pooled_projection_dim", s.size("time_text_embed.text_embedder.linear_1.weight", 1)},
      {"dual_attention_layers", s.numbers("transformer_blocks.", ".attn2.to_q.weight")}};
  if (s.has("transformer_blocks.0.attn.norm_q.weight")) {
    config["qk_norm"] = "rms_norm";
    s.published_head(s.size("transformer_blocks.0.attn.norm_q.weight", 0), kHead);
  }
  return config;
}

Json z_image(const Shapes& s) {
  const int64_t hidden = s.size("all_x_embedder.2-1.weight", 0);
  const int64_t head = s.published_head(s.size("layers.0.attention.norm_q.weight", 0), 128);
  return {{"dim", hidden},
          {"n_heads", hidden / head},
          {"n_kv_heads", s.size("layers.0.attention.to_k.weight", 0) / head},
          {"n_layers", s.count("layers.", ".attention.norm_q.weight")},
          {"n_refiner_layers", s.count("noise_refiner.", ".attention.norm_q.weight")},
          {"cap_feat_dim", s.size("cap_embedder.0.weight", 0)},
          {"in_channels", s.size("all_x_embedder.2-1.weight", 1) / 4},
          {"all_patch_size", {2}},
          {"all_f_patch_size", {1}},
          {"axes_dims", {32, 48, 48}},
          {"axes_lens", {1536, 512, 512}},
          {"norm_eps", 1e-5},
          {"qk_norm", true},
          {"rope_theta", 256.0},
          {"t_scale", 1000.0}};
}

struct Description {
  const char* type;
  Json (*make)(const Shapes& shapes);
};
constexpr Description kDescriptions[] = {{"FluxTransformer2DModel", flux},
                                         {"Flux2Transformer2DModel", flux2},
                                         {"SD3Transformer2DModel", sd3},
                                         {"ZImageTransformer2DModel", z_image}};

}  // namespace

Json described_by_shapes(const std::string& type, const TensorSet& tensors,
                         const std::string& file) {
  const Shapes shapes(tensors, type, file);
  for (const Description& description : kDescriptions)
    if (type == description.type) {
      Json config = description.make(shapes);
      config["_class_name"] = type;
      return config;
    }
  shapes.unknown("it is for a " + type);
}

}  // namespace tessera::load
