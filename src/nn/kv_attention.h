#pragma once

#include "nn/kv_slots.h"

namespace tessera::nn {

/// Attention of token models on one rank: the tokens of a view write their keys and values into
/// slots and ask all slots of their row that they may see: view.lengths of them, or with a
/// causal_block the blocks up to their own. What a view leaves out is read as an earlier pass left
/// it.
class KvAttention : public Attention {
 public:
  KvAttention(const Geometry& geometry, DType dtype)
      : geometry_(geometry), slots_(geometry, dtype) {}
  Tensor attend(int site, const TokenView& view, const Heads& heads) override;
  const KvSlots& slots() const { return slots_; }

 protected:
  /// Writes what a pass has computed; `view` are my tokens.
  virtual void keep(int site, const TokenView& view, const Heads& body);
  void write(int site, const Segments& segments, const Tensor& k, const Tensor& v) {
    slots_.write(site, segments, k, v, step_.index);
  }

 private:
  const Geometry& geometry_;
  KvSlots slots_;
};

}  // namespace tessera::nn
