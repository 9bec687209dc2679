#pragma once

#include <cstdint>
#include <memory>

#include "kernels/experts.h"
#include "kernels/matmul.h"
#include "kernels/packed_weight.h"
#include "kernels/scratch.h"

// What the products of AVX2, AVX-512 and AMX share: packed rows, sweeps over panels, and who takes
// the sums.
namespace tessera::kernels::wide {

using tensor::DType;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// [begin, end) of panels or rows.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
/// Part i of `parts` of n, as even as can be.
constexpr Range share(int64_t n, int64_t parts, int64_t i) {
  return {n * i / parts, n * (i + 1) / parts};
}

/// Rows are packed in groups, a group as [step][row][line]: what a block of sums reads in turn. A
/// line holds a row's elements of a step. Tails along k are zeros. Even groups share the rows
/// evenly; padded ones all have `most` rows.
struct RowLayout {
  int64_t rows = 0, steps = 0, most = 1;
  bool padded = false;
  int64_t line = 64;  ///< bytes
  int64_t tail = 0;   ///< bytes for each row behind all lines

  int64_t groups() const { return ceil_div(rows, most); }
  Range group(int64_t g) const {
    return padded ? Range{g * most, (g + 1) * most} : share(rows, groups(), g);
  }
  int64_t group_of(int64_t row) const {
    if (padded) return row / most;
    return ((row + 1) * groups() - 1) / rows;  // the inverse of share()
  }
  /// Bytes from the start to step `step` of a row.
  int64_t offset(int64_t row, int64_t step) const {
    const Range g = group(group_of(row));
    return (g.begin * steps + step * g.size() + row - g.begin) * line;
  }
  int64_t tail_at() const { return (padded ? groups() * most : rows) * steps * line; }
  int64_t bytes() const { return tail_at() + ceil_div(rows * tail, 64) * 64; }
};

/// Takes the sums of a block: sums[r * 32 + c] is row `row` + r, column c of panel `panel`.
class BlockWriter {
 public:
  virtual ~BlockWriter() = default;
  virtual void write(int64_t row, int64_t rows, int64_t panel, const float* sums) = 0;
};

/// Packs rows of x (row r is x[ids ? ids[r] / slots : r]), rounded where the engine rounds.
struct RowSource {
  const void* x = nullptr;
  DType dtype = DType::f32;
  int64_t stride = 0, k = 0;
  const int32_t* ids = nullptr;
  int64_t slots = 1;
};

/// Bytes of RowLayout::tail that digits need.
constexpr int64_t kRowTail = 16;

struct RowKernels;

/// One way to compute blocks. The order of a row's sum over k is a function of k alone.
struct Engine {
  int64_t most;  ///< rows of a group
  bool padded;
  DType rows_for_bf16;  ///< how rows rounded to bf16 are stored: bf16, or widened to f32
  void (*sweep)(const std::byte* x, const RowLayout& layout, const PackedWeight& w, Range panels,
                BlockWriter& writer);
  const RowKernels& (*kernels)();  ///< of its instruction set
  /// Of i8 weights: row `row` of a layout, row `from` of the source, becomes whole numbers; all of
  /// it must be there.
  void (*pack_digits)(const RowSource& source, int64_t from, int64_t row, const RowLayout& layout,
                      std::byte* out) = nullptr;
  int64_t step_tail = 0;  ///< bytes of a step of a row, beside kRowTail
  int64_t digits = 2;     ///< bytes of a whole number of a row

  DType rows_for(DType weight) const { return weight == DType::bf16 ? rows_for_bf16 : DType::f32; }
  RowLayout layout(int64_t rows, int64_t steps, DType weight) const {
    if (pack_digits)
      return {
          rows, steps, most, padded, digits * step_elements(weight), kRowTail + steps * step_tail};
    return {rows, steps, most, padded, step_elements(weight) * size_of(rows_for(weight))};
  }
};

/// What is done to rows before and after the products, in the vectors of an instruction set.
struct RowKernels {
  void (*pack)(const Engine& engine, const RowSource& source, int64_t first,
               const RowLayout& layout, DType weight, std::byte* out);
  /// Writes sums through an epilogue to y; row r goes to row map[r] if there is a map.
  std::unique_ptr<BlockWriter> (*epilogue)(const MatmulArgs& args, int64_t first_row,
                                           const int32_t* map);
  /// act(up + bias), rounded to bf16 for weights of bf16, straight into the packed rows of the down
  /// product; where these need all of a row, as f32 for them.
  std::unique_ptr<BlockWriter> (*inner)(const Engine& engine, std::byte* rows,
                                        const RowLayout& layout, const ExpertView& expert,
                                        Activation activation);
};

/// Rows of `steps` steps of the weight that the weights pass at once, a multiple of the group: as
/// many as half of this CPU's L2 holds packed, or, where these are few, as many as are worth a
/// pass.
int64_t resident_rows(const Engine& engine, int64_t steps, DType weight);

/// The whole of matmul over an engine.
void multiply(const Engine& engine, const MatmulArgs& args);
/// What ExpertTiles are, over an engine.
ExpertCuts expert_cuts(const Engine& engine, const ExpertView& expert);
int64_t expert_inner_bytes(const Engine& engine, const ExpertView& expert, int64_t rows);
void expert_up_tile(const Engine& engine, const ExpertTile& tile);
void expert_down_tile(const Engine& engine, const ExpertTile& tile);
/// The tiles of an instruction set whose engine for weights is engine_for(them).
template <const Engine& (*engine_for)(const PackedWeight&)>
const ExpertTiles& tiles_of() {
  static constexpr ExpertTiles kTiles{
      [](const ExpertView& e) { return expert_cuts(engine_for(*e.down), e); },
      [](const ExpertView& e, int64_t rows) {
        return expert_inner_bytes(engine_for(*e.down), e, rows);
      },
      [](const ExpertTile& t) { expert_up_tile(engine_for(*t.expert->down), t); },
      [](const ExpertTile& t) { expert_down_tile(engine_for(*t.expert->down), t); }};
  return kTiles;
}

}  // namespace tessera::kernels::wide
