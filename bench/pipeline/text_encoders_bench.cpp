// A text through a text encoder of published width with few layers and random weights, bf16, either
// packed in advance, as in a process that keeps weights, or packed on demand, as in a first run.
//   text_encoders_bench [threads] [encoder: t5, clip_l, clip_g, bert, qwen3] [times] [kept |
//   packed]
// The number of tokens may follow an encoder: qwen3:77.
// Prints a JSON line: milliseconds and the share of the unit's limit.
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "bench.h"
#include "load/held_weights.h"
#include "models/random_weights.h"
#include "models/registry.h"
#include "ops/elementwise.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

struct Encoder {
  const char *name, *type, *config;
  int64_t tokens;
};
// Published widths; depths as in peers/text_encoders_peer.py.
constexpr Encoder kEncoders[] = {
    {"t5", "T5EncoderModel",
     R"({"d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_heads": 64, "num_layers": 2,
         "vocab_size": 1000, "feed_forward_proj": "gated-gelu"})",
     256},
    {"clip_l", "CLIPTextModelWithProjection",
     R"({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 6,
         "num_attention_heads": 12, "projection_dim": 768, "vocab_size": 1000})",
     77},
    {"clip_g", "CLIPTextModelWithProjection",
     R"({"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 6,
         "num_attention_heads": 20, "projection_dim": 1280, "vocab_size": 1000,
         "hidden_act": "gelu"})",
     77},
    {"bert", "BertModel",
     R"({"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 6,
         "num_attention_heads": 16, "vocab_size": 1000})",
     77},
    {"qwen3", "Qwen3ForCausalLM",
     R"({"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 3,
         "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
         "rope_theta": 1000000, "vocab_size": 1000})",
     512},
};

/// Random weights in the form of a bf16 file.
class Kept : public nn::PackingWeights {
 public:
  bool has(const std::string& name) const override { return random_.has(name); }
  Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
    auto it = kept_.find(name);
    if (it == kept_.end())
      it = kept_.emplace(name, ops::cast(random_.get(name, shape), DType::bf16)).first;
    return it->second;
  }

 private:
  bench::RandomWeights random_;
  mutable std::map<std::string, Tensor> kept_;
};

Encoder encoder_of(std::string_view word) {
  const std::string_view name = word.substr(0, word.find(':'));
  for (Encoder encoder : kEncoders) {
    if (name != encoder.name) continue;
    if (word != name) encoder.tokens = std::atoi(word.data() + name.size() + 1);
    if (encoder.tokens > 0) return encoder;
  }
  std::fprintf(stderr, "text_encoders_bench: no encoder '%.*s'\n", static_cast<int>(word.size()),
               word.data());
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Threads threads(argc, argv);
  const char* word = argc > 2 ? argv[2] : "t5";
  const Encoder spec = encoder_of(word);
  const int times = argc > 3 ? std::atoi(argv[3]) : 5;
  const bool packed = argc > 4 && std::string_view(argv[4]) == "packed";
  std::shared_ptr<const nn::Weights> weights = std::make_shared<Kept>();
  if (!packed) weights = std::make_shared<load::HeldWeights>(weights);
  const auto encoder = models::text_encoder_of(
      spec.type, {base::Json::parse(spec.config), spec.name}, weights, DType::bf16);
  models::TextBatch batch{{}, {spec.tokens}, spec.tokens};
  for (int64_t t = 0; t < spec.tokens; ++t)
    batch.ids.push_back(static_cast<int32_t>(t * 7 % encoder->vocabulary()));
  auto run = [&] { encoder->encode(batch); };
  run();
  bench::print_best(packed ? "text encoder bf16, packed in the run" : "text encoder bf16", word,
                    times, run);
}
