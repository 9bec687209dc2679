#pragma once

#include <map>
#include <utility>
#include <vector>

#include "nn/seams.h"

namespace tessera::nn {

/// Keys and values by (attention site, row, id), each slot with the step that wrote it. The caches
/// of language models (prefix, dual, vicinity, block) are this table under other rules of
/// refreshing. Belongs to one request.
class KvSlots {
 public:
  /// The geometry gives each site's width; elements are of `dtype`.
  KvSlots(const Geometry& geometry, DType dtype) : geometry_(geometry), dtype_(dtype) {}

  /// Keeps k and v [tokens, kv_heads * head_dim] of the tokens of `segments`, over what was there.
  void write(int site, const Segments& segments, const Tensor& k, const Tensor& v, int step);
  /// Keys and values of ids of a row, as views. Throws Error(usage) naming a slot that was never
  /// written.
  std::pair<Tensor, Tensor> read(int site, int row, Range ids) const;
  /// The step that wrote a slot; -1: never written.
  int written(int site, int row, int64_t id) const;
  /// Bytes of all slots.
  int64_t bytes() const;

 private:
  struct Slots {
    Tensor k, v;               // [capacity, width]
    std::vector<int> written;  // by id
  };
  void reserve(Slots& slots, int site, int64_t ids, tensor::Device device) const;

  const Geometry& geometry_;
  DType dtype_;
  std::map<std::pair<int, int>, Slots> slots_;  // by site and row
};

}  // namespace tessera::nn
