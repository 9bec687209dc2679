// A pass of DiffusionGemma over a canvas, with self-conditioning and a text in the KV cache:
// published widths, random weights, few layers (the last is global).
//   diffusion_gemma_bench [threads] [TEXT+CANVAS[xLAYERS[xIDS]][:FORM]] [--turns]
// FORM: bf16, or int8 or int4 for experts with dense matrices in int8; the table of embeddings,
// which is also the head, stays in bf16. Prints a JSON line: milliseconds of the pass and of its
// blocks, the counted FLOPs and bytes, and their shares of limits probed right after.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench.h"
#include "models/diffusion_gemma.h"
#include "models/random_weights.h"
#include "nn/kv_attention.h"
#include "nn/moe/moe_layers.h"
#include "place.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

models::DiffusionGemmaConfig config_of(int64_t layers, int64_t ids) {
  models::DiffusionGemmaConfig c;
  c.vocabulary = ids;
  c.hidden = 2816;
  c.heads = 16;
  c.dense_width = 2112;
  c.expert_width = 704;
  c.experts = 128;
  c.top_k = 8;
  for (int64_t b = 0; b < layers; ++b)
    if (b % 6 == 5 || b + 1 == layers)
      c.layers.push_back({.kv_heads = 2, .head_dim = 512, .turned_pairs = 64, .theta = 1e6});
    else
      c.layers.push_back({.kv_heads = 8, .head_dim = 256, .window = 1024, .turned_pairs = 128});
  return c;
}

/// Random weights in the forms of a quantised folder.
class FormedWeights : public bench::RandomWeights {
 public:
  explicit FormedWeights(std::string form) : form_(std::move(form)) {}

  nn::FetchedWeight fetch(const nn::WeightRequest& r) const override {
    if (!r.packs() || r.compute == DType::f32 || form_ == "bf16" || is_table(r.name))
      return RandomWeights::fetch(r);
    ops::WeightForm form(DType::i8);
    form.int4 = form_ == "int4" && r.compute == DType::i8;
    const auto part = [&](const std::string& name) { return stored(name, r.shape); };
    if (r.form == Form::matrix) return {.packed = ops::pack_weight(part(r.name), form)};
    return {.packed = ops::pack_paired_weight(part(r.name), part(r.second), form)};
  }
  Tensor stored(const std::string& name, const tensor::Shape& shape) const override {
    if (!is_table(name)) return RandomWeights::stored(name, shape);
    if (!table_.defined()) table_ = bench::random_tensor(shape, DType::bf16, 3, 0.02f);
    return table_;
  }

 private:
  static bool is_table(const std::string& name) { return name.ends_with("embed_tokens.weight"); }
  std::string form_;
  mutable Tensor table_;
};

/// Seconds and counted work of a pass and of its blocks alone.
struct Pass {
  double seconds = 0, block_seconds = 0;
  tensor::Meter::Entry work{}, block_work{};
  double experts = 0;  ///< distinct in a layer, in the mean
};

/// A canvas behind a text whose keys and values are cached.
class Canvas {
 public:
  Canvas(const models::DiffusionGemma& model, int64_t text, int64_t canvas)
      : model_(model),
        attention_(model.geometry(), {{0, text + canvas}}),
        ids_(ids_of(canvas)),
        view_{-1, {0}, {}, {{0, {text, text + canvas}}}, {text + canvas}} {
    view_.canvas = {text};
    earlier_ = {view_.body, Tensor::zeros({canvas, model.vocabulary()}, DType::f32)};
    if (text == 0) return;
    const nn::TokenView before{-1, {0}, {}, {{0, {0, text}}}, {text}};
    nn::MoeLayers experts;
    nn::Hidden hidden = model.embed(ids_of(text), before);
    blocks(before, hidden, experts);
  }
  Pass run() {
    Pass pass;
    nn::MoeLayers experts;
    const auto all = std::make_shared<tensor::Meter>(),
               inner = std::make_shared<tensor::Meter>(all);
    tensor::Scope counting = tensor::current_scope(), counting_blocks = counting;
    counting.meter = all;
    counting_blocks.meter = inner;
    const tensor::BindScope bind(counting);
    pass.seconds = kernels::best_seconds(
        [&] {
          nn::Hidden hidden = model_.embed_canvas(ids_, view_, earlier_);
          {
            const tensor::BindScope bind_blocks(counting_blocks);
            pass.block_seconds = kernels::best_seconds([&] { blocks(view_, hidden, experts); }, 1);
          }
          model_.logits(hidden, view_, view_.body);
        },
        1);
    pass.work = all->total();
    pass.block_work = inner->total();
    const auto& events = experts.log().events();
    for (const auto& event : events)
      pass.experts += static_cast<double>(event.distinct) / static_cast<double>(events.size());
    return pass;
  }

 private:
  std::vector<int32_t> ids_of(int64_t count) const {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i)
      ids.push_back(static_cast<int32_t>(i * 977 % model_.vocabulary()));
    return ids;
  }
  void blocks(const nn::TokenView& view, nn::Hidden& hidden, nn::Experts& experts) {
    const auto placement = model_.place(view);
    for (int b = 0; b < model_.geometry().blocks; ++b)
      model_.block(b, {}, *placement, hidden, {attention_, experts});
  }

  const models::DiffusionGemma& model_;
  nn::KvAttention attention_;
  std::vector<int32_t> ids_;
  nn::TokenView view_;
  nn::EarlierLogits earlier_;
};

std::string shares(const char* of, double seconds, const tensor::Meter::Entry& work,
                   const kernels::Limits& limits) {
  return fmt::format(
      ",\"{0}ms\":{1:.2f},\"{0}gflops\":{2:.1f},\"{0}share_of_peak\":{3:.3f},"
      "\"{0}gbytes_per_s\":{4:.2f},\"{0}share_of_bandwidth\":{5:.3f}",
      of, seconds * 1e3, work.flops / seconds / 1e9, work.flops / seconds / limits.product(true),
      work.bytes / seconds / 1e9, work.bytes / seconds / limits.read);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Place place(argc, argv);
  const bench::Threads threads(argc, argv);
  const std::string shape = argc > 2 ? argv[2] : "256+32x2x262144:bf16";
  long text = 256, tokens = 32, layers = 2, ids = 262144;
  std::sscanf(shape.c_str(), "%ld+%ldx%ldx%ld", &text, &tokens, &layers, &ids);
  const size_t colon = shape.find(':');
  const std::string form = colon == std::string::npos ? "bf16" : shape.substr(colon + 1);
  nn::Portion portion{{0, layers}, true, true};
  if (form != "bf16") portion.expert_dtype = DType::i8;
  const models::DiffusionGemma model(config_of(layers, ids), FormedWeights(form), portion,
                                     DType::bf16);
  Canvas canvas(model, text, tokens);
  canvas.run();  // warm-up
  for (bool more = !place.turns || bench::Place::turn(); more;
       more = place.turns && bench::Place::turn()) {
    const Pass pass = canvas.run();
    const kernels::Limits limits = kernels::probe_limits();
    std::puts(fmt::format("{{\"bench\":\"diffusion gemma\",\"shape\":\"{}\",\"threads\":{},"
                          "\"experts\":{:.1f}{}{}}}",
                          shape, tensor::thread_count(), pass.experts,
                          shares("", pass.seconds, pass.work, limits),
                          shares("blocks_", pass.block_seconds, pass.block_work, limits))
                  .c_str());
    std::fflush(stdout);
  }
}
