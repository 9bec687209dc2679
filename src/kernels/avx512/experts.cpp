#include "kernels/experts.h"

#if defined(__x86_64__)
#include <algorithm>
#include <vector>

#include "kernels/avx512/product.h"
#include "kernels/avx512/vector.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

// act(up + bias), rounded to bf16 for weights of bf16, straight into the packed rows of the down
// product.
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
    const int64_t step = step_elements(weight_), inner = expert_.down->k;
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
      for (int64_t r = 0; r < rows; ++r, to += layout_.line, from += kPanelColumns) {
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

// Some rows of an expert, and where their inner activations stand.
struct Part {
  int64_t expert, first, rows, inner;
};

struct Work {
  const Engine& engine;
  const ExpertsArgs& args;
  ExpertGroups groups;
  DType dtype;
  PanelShape up, down;
  std::vector<Part> parts;
  int64_t inner_bytes = 0;

  Work(const Engine& e, const ExpertsArgs& a)
      : engine(e),
        args(a),
        groups(group_by_expert(a)),
        dtype(a.bank[0].down->dtype),
        up(panel_shape(*a.bank[0].up)),
        down(panel_shape(*a.bank[0].down)) {
    const int64_t most = resident_rows(e, std::max(up.steps, down.steps), dtype);
    for (int64_t x = 0; x < a.experts; ++x) {
      const int64_t begin = groups.begin[static_cast<size_t>(x)];
      const int64_t rows = groups.begin[static_cast<size_t>(x) + 1] - begin;
      for (int64_t i = 0, n = ceil_div(rows, most); i < n; ++i) {
        const Range r = share(rows, n, i);
        parts.push_back({x, begin + r.begin, r.size(), inner_bytes});
        inner_bytes += inner_layout(parts.back()).bytes();
      }
    }
    // The long parts first: the short ones fill the gaps at the end.
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& p, const Part& q) { return p.rows > q.rows; });
  }
  RowLayout layout(const Part& p, int64_t steps) const {
    return engine.layout(p.rows, steps, dtype);
  }
  RowLayout inner_layout(const Part& p) const { return layout(p, down.steps); }
  // Cuts of a part's panels: enough tasks for all threads, and packing stays small beside products.
  int64_t cuts(int64_t panels) const {
    const int64_t wanted = ceil_div(8 * tensor::thread_count(), static_cast<int64_t>(parts.size()));
    return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, panels / 8));
  }
};

void gate_and_up(const Work& work, const Part& p, Range panels, std::byte* inner) {
  const ExpertsArgs& a = work.args;
  const RowLayout layout = work.layout(p, work.up.steps), next = work.inner_layout(p);
  std::byte* const x = thread_scratch(0).at_least(layout.bytes());
  pack_rows(work.engine, {a.x, a.dtype, a.x_stride, a.hidden, work.groups.pair.data(), a.slots},
            p.first, layout, work.dtype, x);
  const ExpertView& expert = a.bank[p.expert];
  InnerWriter writer(work.engine, inner + p.inner, next, expert, a.activation);
  work.engine.sweep(x, layout, *expert.up, panels, writer);
}

void down(const Work& work, const Part& p, Range panels, const std::byte* inner) {
  const ExpertsArgs& a = work.args;
  MatmulArgs out;
  out.weight = a.bank[p.expert].down;
  out.epilogue.bias = a.bank[p.expert].down_bias;
  out.y = a.rows;
  out.y_dtype = a.dtype;
  out.y_stride = a.hidden;
  const auto writer = epilogue_writer(out, p.first, work.groups.pair.data());
  work.engine.sweep(inner + p.inner, work.inner_layout(p), *out.weight, panels, *writer);
}

void clear_rows_without_expert(const ExpertsArgs& args) {
  const int64_t bytes = args.hidden * size_of(args.dtype);
  for (int64_t i = 0; i < args.tokens * args.slots; ++i)
    if (args.ids[i] < 0)
      std::memset(static_cast<std::byte*>(args.rows) + i * bytes, 0, static_cast<size_t>(bytes));
}

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

void run_experts(const Engine& e, const ExpertsArgs& args) {
  clear_rows_without_expert(args);
  const Work work(e, args);
  if (work.parts.empty()) return;
  std::byte* const inner = thread_scratch(1).at_least(work.inner_bytes);
  const int64_t parts = static_cast<int64_t>(work.parts.size());
  const int64_t ups = work.cuts(work.up.panels), downs = work.cuts(work.down.panels);
  tensor::parallel_tasks(parts * ups, [&](int64_t task) {
    gate_and_up(work, work.parts[static_cast<size_t>(task / ups)],
                share(work.up.panels, ups, task % ups), inner);
  });
  tensor::parallel_tasks(parts * downs, [&](int64_t task) {
    down(work, work.parts[static_cast<size_t>(task / downs)],
         share(work.down.panels, downs, task % downs), inner);
  });
}

void experts(const ExpertsArgs& args) { run_experts(engine(), args); }

void combine(const CombineArgs& args) {
  tensor::parallel_for(args.tokens, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) combine_token(args, t);
  });
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
