#include "kernels/experts.h"

#if defined(__x86_64__)
#include <algorithm>

#include "kernels/avx512/product.h"
#include "kernels/avx512/vector.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

// act(up + bias), rounded to bf16 for weights of bf16, straight into the packed rows of the down
// product; where these need all of a row, as f32 for them.
class InnerWriter final : public BlockWriter {
 public:
  InnerWriter(const Engine& e, std::byte* rows, const RowLayout& layout, const ExpertView& expert,
              Activation activation)
      : rows_(rows),
        layout_(layout),
        expert_(expert),
        activation_(activation),
        weight_(expert.down->dtype),
        stored_(e.rows_for(weight_)),
        size_(size_of(stored_)) {}

  void write(int64_t row, int64_t rows, int64_t panel, const float* sums) override {
    switch (activation_) {
      case Activation::none: return all<Activation::none>(row, rows, panel, sums);
      case Activation::silu: return all<Activation::silu>(row, rows, panel, sums);
      case Activation::gelu_tanh: return all<Activation::gelu_tanh>(row, rows, panel, sums);
      case Activation::gelu_erf: return all<Activation::gelu_erf>(row, rows, panel, sums);
      case Activation::relu: return all<Activation::relu>(row, rows, panel, sums);
      case Activation::swiglu: return all<Activation::swiglu>(row, rows, panel, sums);
    }
  }

 private:
  template <Activation activation>
  void all(int64_t row, int64_t rows, int64_t panel, const float* sums) const {
    constexpr bool kPaired = activation == Activation::swiglu;
    constexpr int64_t kParts = kPaired ? 1 : 2;
    const int64_t step = layout_.line / size_, inner = expert_.down->k;
    const int64_t row_bytes = layout_.most == 1 ? layout_.steps * layout_.line : layout_.line;
    for (int64_t part = 0; part < kParts; ++part) {
      const int64_t column = (panel * kParts + part) * 16;
      if (column >= inner) return;
      const __m512 bias =
          expert_.up_bias ? _mm512_maskz_loadu_ps(lanes(inner - column), expert_.up_bias + column)
                          : _mm512_setzero_ps();
      // The last columns may leave a part of their step: zeros.
      const int64_t pad = column + 16 >= inner ? step - column % step : 0;
      std::byte* to = rows_ + layout_.offset(row, column / step) + column % step * size_;
      const float* from = sums + part * 16;
      for (int64_t r = 0; r < rows; ++r, to += row_bytes, from += kPanelColumns) {
        __m512 v = _mm512_load_ps(from);
        if constexpr (kPaired)
          v = _mm512_mul_ps(silu(v), _mm512_load_ps(from + 16));
        else
          v = activate<activation>(_mm512_add_ps(v, bias));
        put(to, v);
        for (int64_t i = 16; i < pad; i += 16) put(to + i * size_, _mm512_setzero_ps());
      }
    }
  }

  void put(std::byte* to, __m512 v) const {
    if (weight_ != DType::bf16)
      _mm512_store_ps(to, v);
    else if (stored_ == DType::bf16)
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), to_bf16(v));
    else
      _mm512_store_ps(to, widen(to_bf16(v)));
  }

  std::byte* rows_;
  const RowLayout& layout_;
  const ExpertView& expert_;
  Activation activation_;
  DType weight_, stored_;
  int64_t size_;
};

// Digits are made of whole rows, when all are there: until then these are dense f32.
RowLayout inner_layout(const Engine& e, const ExpertView& expert, int64_t rows) {
  if (e.digits) return {rows, ceil_div(expert.down->k, 16), 1, false, 64};
  return e.layout(rows, panel_shape(*expert.down).steps, expert.down->dtype);
}

const Engine& engine_of(const ExpertView& expert) { return engine_for(expert.down->dtype); }

void combine_token(const CombineArgs& args, int64_t t) {
  for (int64_t c = 0; c < args.hidden; c += 16) {
    const __mmask16 keep = lanes(args.hidden - c);
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = t * args.slots; i < (t + 1) * args.slots; ++i)
      sum = _mm512_fmadd_ps(_mm512_set1_ps(args.weights[i]),
                            load(args.rows, args.dtype, i * args.row_stride + c, keep), sum);
    if (args.shared)
      sum = _mm512_add_ps(sum, load(args.shared, args.dtype, t * args.shared_stride + c, keep));
    store(args.y, args.dtype, t * args.hidden + c, keep, sum);
  }
}

}  // namespace

ExpertCuts expert_cuts(const Engine& e, const ExpertView& expert) {
  const PanelShape up = panel_shape(*expert.up), down = panel_shape(*expert.down);
  return {resident_rows(e, std::max(up.steps, down.steps), expert.down->dtype), up.panels,
          down.panels};
}

int64_t expert_inner_bytes(const Engine& e, const ExpertView& expert, int64_t rows) {
  return inner_layout(e, expert, rows).bytes();
}

void expert_up_tile(const Engine& e, const ExpertTile& tile) {
  const ExpertView& expert = *tile.expert;
  const DType dtype = expert.down->dtype;
  const RowLayout layout = e.layout(tile.rows, panel_shape(*expert.up).steps, dtype),
                  next = inner_layout(e, expert, tile.rows);
  std::byte* const x = thread_scratch(0).at_least(layout.bytes());
  pack_rows(e, {tile.x, tile.dtype, tile.x_stride, expert.up->k, tile.pair, tile.slots}, 0, layout,
            dtype, x);
  InnerWriter writer(e, tile.inner, next, expert, tile.activation);
  e.sweep(x, layout, *expert.up, {tile.begin, tile.end}, writer);
}

void expert_down_tile(const Engine& e, const ExpertTile& tile) {
  const ExpertView& expert = *tile.expert;
  MatmulArgs out;
  out.weight = expert.down;
  out.epilogue.bias = expert.down_bias;
  out.y = tile.y;
  out.y_dtype = tile.dtype;
  out.y_stride = expert.down->n;
  const auto writer = epilogue_writer(out, 0, tile.pair);
  RowLayout layout = inner_layout(e, expert, tile.rows);
  const std::byte* inner = tile.inner;
  if (e.digits) {
    const RowSource dense{inner, DType::f32, layout.steps * 16, expert.down->k};
    layout = e.layout(tile.rows, panel_shape(*expert.down).steps, expert.down->dtype);
    std::byte* const packed = thread_scratch(0).at_least(layout.bytes());
    pack_rows(e, dense, 0, layout, expert.down->dtype, packed);
    inner = packed;
  }
  e.sweep(inner, layout, *expert.down, {tile.begin, tile.end}, *writer);
}

const ExpertTiles& expert_tiles() {
  static constexpr ExpertTiles kTiles{
      [](const ExpertView& expert) { return expert_cuts(engine_of(expert), expert); },
      [](const ExpertView& expert, int64_t rows) {
        return expert_inner_bytes(engine_of(expert), expert, rows);
      },
      [](const ExpertTile& tile) { expert_up_tile(engine_of(*tile.expert), tile); },
      [](const ExpertTile& tile) { expert_down_tile(engine_of(*tile.expert), tile); }};
  return kTiles;
}

void experts(const ExpertsArgs& args) { run_experts(expert_tiles(), args); }

void combine(const CombineArgs& args) {
  tensor::parallel_for(args.tokens, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) combine_token(args, t);
  });
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
