#include "nn/split.h"

#include "base/fail.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::nn {

using tensor::Tensor;

tensor::Shape Cut::of(const tensor::Shape& shape) const {
  if (whole()) return shape;
  int64_t size = 0;
  for (const Range& r : ranges) size += r.size();
  return shape.with(axis, size);
}

Cut Split::of(const Shard& shard) const {
  Cut cut{by_inputs ? 1 : 0};
  if (shard.count == 1) return cut;
  int64_t at = 0;
  for (const Piece& piece : pieces) {
    const int64_t units = piece.width / piece.unit;
    require(units >= shard.count, ErrorCode::plan,
            "the plan cannot run: tensor={} leaves a rank nothing of a layer of {} channels, {} "
            "together; use tensor={}, or less",
            shard.count, piece.width, piece.unit, units);
    const Range range = split({0, units}, shard.count, shard.index);
    cut.ranges.push_back({at + range.begin * piece.unit, at + range.end * piece.unit});
    at += piece.width;
  }
  return cut;
}

Tensor taken(const Tensor& whole, const Cut& cut) {
  if (cut.whole()) return whole;
  if (cut.axis == 0 && cut.ranges.size() == 1)
    return whole.slice(0, cut.ranges[0].begin, cut.ranges[0].end);
  const tensor::Uncounted aside(tensor::Counts::work);
  Tensor part = Tensor::empty(cut.of(whole.shape()), whole.dtype(), whole.device(),
                              tensor::MemoryClass::weights);
  int64_t at = 0;
  for (const Range& r : cut.ranges) {
    tensor::copy_into(part.slice(cut.axis, at, at + r.size()),
                      whole.slice(cut.axis, r.begin, r.end));
    at += r.size();
  }
  return part;
}

}  // namespace tessera::nn
