#pragma once

#include <cstdint>
#include <memory>

#include "kernels/experts.h"
#include "kernels/matmul.h"
#include "kernels/packed_weight.h"
#include "kernels/scratch.h"

// Shared parts of the products of AVX2, AVX-512 and AMX: packed rows, sweeps over panels, and
// writers of the sums.
namespace tessera::kernels::wide {

using tensor::DType;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Range [begin, end) of panels or rows.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
/// Part i of an even division of n into `parts`.
constexpr Range share(int64_t n, int64_t parts, int64_t i) {
  return {n * i / parts, n * (i + 1) / parts};
}

/// Rows are packed in groups, each as [step][row][line]: the order in which a block of sums reads.
/// A line holds a row's elements of a step. Tails along k are zeros. Even groups share the rows
/// evenly; padded groups all have `most` rows.
struct RowLayout {
  int64_t rows = 0, steps = 0, most = 1;
  bool padded = false;
  int64_t line = 64;  ///< bytes of a line
  int64_t tail = 0;   ///< extra bytes for each row after all lines

  int64_t groups() const { return ceil_div(rows, most); }
  Range group(int64_t g) const {
    return padded ? Range{g * most, (g + 1) * most} : share(rows, groups(), g);
  }
  int64_t group_of(int64_t row) const {
    if (padded) return row / most;
    return ((row + 1) * groups() - 1) / rows;  // the inverse of share()
  }
  /// Byte offset of step `step` of a row.
  int64_t offset(int64_t row, int64_t step) const {
    const Range g = group(group_of(row));
    return (g.begin * steps + step * g.size() + row - g.begin) * line;
  }
  int64_t tail_at() const { return (padded ? groups() * most : rows) * steps * line; }
  int64_t bytes() const { return tail_at() + ceil_div(rows * tail, 64) * 64; }
};

/// Receives the sums of a block: sums[r * 32 + c] is row `row` + r, column c of panel `panel`.
class BlockWriter {
 public:
  virtual ~BlockWriter() = default;
  virtual void write(int64_t row, int64_t rows, int64_t panel, const float* sums) = 0;
};

/// Rows of x for packing (row r is x[ids ? ids[r] / slots : r]), rounded if the engine rounds.
struct RowSource {
  const void* x = nullptr;
  DType dtype = DType::f32;
  int64_t stride = 0, k = 0;
  const int32_t* ids = nullptr;
  int64_t slots = 1;
};

/// Bytes of RowLayout::tail needed by digits.
constexpr int64_t kRowTail = 16;

struct RowKernels;

/// An implementation of block products. The order of a row's sum over k depends on k only.
struct Engine {
  int64_t most;  ///< rows of a group
  bool padded;
  DType rows_for_bf16;  ///< storage of rows rounded to bf16: bf16, or widened to f32
  void (*sweep)(const std::byte* x, const RowLayout& layout, const PackedWeight& w, Range panels,
                BlockWriter& writer);
  const RowKernels& (*kernels)();  ///< row kernels of the instruction set
  /// For i8 weights: quantises row `from` of the source into row `row` of a layout; the row must be
  /// complete.
  void (*pack_digits)(const RowSource& source, int64_t from, int64_t row, const RowLayout& layout,
                      std::byte* out) = nullptr;
  int64_t step_tail = 0;  ///< bytes of a step of a row, beside kRowTail
  int64_t digits = 2;     ///< bytes of an integer of a row
  /// Continues the sums [rows, 32] of a panel by the steps of the layout, or begins them: with the
  /// bits of a sweep over all steps if each call has chunk(steps) of these. Null: for i8.
  void (*extend)(const std::byte* x, const RowLayout& layout, DType weight, const std::byte* panel,
                 float* sums, bool first) = nullptr;
  int64_t (*chunk)(int64_t steps) = nullptr;

  DType rows_for(DType weight) const { return weight == DType::bf16 ? rows_for_bf16 : DType::f32; }
  RowLayout layout(int64_t rows, int64_t steps, DType weight) const {
    if (pack_digits)
      return {
          rows, steps, most, padded, digits * step_elements(weight), kRowTail + steps * step_tail};
    return {rows, steps, most, padded, step_elements(weight) * size_of(rows_for(weight))};
  }
};

/// Operations on rows before and after the products, in the vectors of an instruction set.
struct RowKernels {
  void (*pack)(const Engine& engine, const RowSource& source, int64_t first,
               const RowLayout& layout, DType weight, std::byte* out);
  /// Writes sums through an epilogue to y; with a map, row r goes to row map[r].
  std::unique_ptr<BlockWriter> (*epilogue)(const MatmulArgs& args, int64_t first_row,
                                           const int32_t* map);
  /// act(up + bias), rounded to bf16 for bf16 weights, straight into the packed rows of the down
  /// product; or as f32 if these need complete rows.
  std::unique_ptr<BlockWriter> (*inner)(const Engine& engine, std::byte* rows,
                                        const RowLayout& layout, const ExpertView& expert,
                                        Activation activation);
};

/// Number of rows that stay resident while weights pass, for `steps` steps of the weight; a
/// multiple of the group: as many as fit packed into half of this CPU's L2, or the minimum worth a
/// pass if that is more.
int64_t resident_rows(const Engine& engine, int64_t steps, DType weight);

/// Runs a whole matmul with an engine.
void multiply(const Engine& engine, const MatmulArgs& args);
/// Same for a table (kernels/packed_transpose.h): it passes once, and is packed in parts on the
/// way.
void multiply_by_table(const Engine& engine, const MatmulArgs& args);
/// ExpertTiles functions with an engine.
ExpertCuts expert_cuts(const Engine& engine, const ExpertView& expert);
int64_t expert_inner_bytes(const Engine& engine, const ExpertView& expert, int64_t rows);
void expert_up_tile(const Engine& engine, const ExpertTile& tile);
void expert_down_tile(const Engine& engine, const ExpertTile& tile);
/// ExpertTiles of an instruction set with engine_for(weights).
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
