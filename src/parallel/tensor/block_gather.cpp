#include "parallel/tensor/block_gather.h"

#include <algorithm>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::parallel {

namespace {

using tensor::Tensor;

constexpr int64_t kPiece = int64_t{1} << 18;  // bytes that a thread copies at once

// In pages as weights have them, which come back for the next one (tensor::PageReuse).
Tensor room_for(int64_t bytes, tensor::Device device) {
  tensor::Scope uncounted = tensor::current_scope();
  uncounted.memory = nullptr;
  const auto room = [&] {
    const tensor::BindScope bound(uncounted);
    return Tensor::empty({bytes}, tensor::DType::u8, device, tensor::MemoryClass::weights);
  }();
  return room.held_as(tensor::MemoryClass::buffers);
}

}  // namespace

comm::Exchange BlockGather::launch(int block, const nn::SpreadBlocks& of) {
  next_ = block;
  const auto at = static_cast<size_t>(block - of.blocks.begin);
  return comm::all_gather(ranks_, of.mine.at(at), {operation_, block});
}

Tensor BlockGather::bytes(int block, const nn::SpreadBlocks& of) {
  if (!under_way_ || next_ != block) under_way_.emplace(launch(block, of));
  const auto at = static_cast<size_t>(block - of.blocks.begin);
  const int64_t whole = of.whole.at(at);
  const Tensor& mine = of.mine.at(at);
  block_ = {};  // experts that still wait for its rows keep the one before
  block_ = room_for(whole, mine.device());
  int64_t filled = 0;
  for (Tensor& run : under_way_->wait()) {
    require(run.dtype() == tensor::DType::u8 && run.rank() == 1 && run.size(0) <= whole - filled,
            ErrorCode::rank,
            "block {}: a rank sends {} {} of its weights, where {} of {} bytes are"
            " left; start all ranks on one model",
            block, tensor::name_of(run.dtype()), run.shape().str(), whole - filled, whole);
    if (!run.is_meta())
      tensor::parallel_for(run.size(0), kPiece, [&](int64_t begin, int64_t end) {
        tensor::copy_into(block_.slice(0, filled + begin, filled + end), run.slice(0, begin, end));
      });
    filled += run.size(0);
    run = {};
  }
  under_way_.reset();
  require(filled == whole, ErrorCode::rank,
          "block {}: the ranks have {} of its {} bytes of weights; start all on one model", block,
          filled, whole);
  const int after = block + 1 < of.blocks.end ? block + 1
                    : another_                ? static_cast<int>(of.blocks.begin)
                                              : -1;
  if (after >= 0) under_way_.emplace(launch(after, of));
  return block_;
}

}  // namespace tessera::parallel
