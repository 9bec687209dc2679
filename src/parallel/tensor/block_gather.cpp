#include "parallel/tensor/block_gather.h"

#include <algorithm>

#include "base/fail.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::parallel {

namespace {

using tensor::Tensor;

constexpr int64_t kPiece = int64_t{1} << 18;    // bytes of a copy on a thread
constexpr int64_t kPassing = int64_t{1} << 25;  // bytes of all ranks under way, without blocks

// Pages as for weights, reused for the next block (tensor::PageReuse).
Tensor room_for(int64_t bytes, tensor::Device device) {
  const auto room = [&] {
    const tensor::Uncounted aside(tensor::Counts::work);
    return Tensor::empty({bytes}, tensor::DType::u8, device, tensor::MemoryClass::weights);
  }();
  return room.held_as(tensor::MemoryClass::buffers);
}

void copy(const Tensor& to, const Tensor& from) {
  if (from.is_meta()) return;
  tensor::parallel_for(from.size(0), kPiece, [&](int64_t begin, int64_t end) {
    tensor::copy_into(to.slice(0, begin, end), from.slice(0, begin, end));
  });
}

}  // namespace

comm::Exchange BlockGather::launch(int block, const nn::ShardedBlocks& shards) {
  next_ = block;
  const auto at = static_cast<size_t>(block - shards.blocks.begin);
  return comm::all_gather(ranks_, shards.mine.at(at), {operation_, block});
}

Tensor BlockGather::bytes(int block, const nn::ShardedBlocks& shards) {
  if (!under_way_ || next_ != block) under_way_.emplace(launch(block, shards));
  const auto at = static_cast<size_t>(block - shards.blocks.begin);
  const int64_t whole = shards.whole.at(at);
  const Tensor& own_part = shards.mine.at(at);
  block_ = {};  // experts with open work keep the block before
  block_ = room_for(whole, own_part.device());
  int64_t filled = 0;
  for (Tensor& run : under_way_->wait()) {
    require(run.dtype() == tensor::DType::u8 && run.rank() == 1 && run.size(0) <= whole - filled,
            ErrorCode::rank,
            "block {}: a rank sends {} {} of its weights, where {} of {} bytes are"
            " left; start all ranks on one model",
            block, tensor::name_of(run.dtype()), run.shape().str(), whole - filled, whole);
    copy(block_.slice(0, filled, filled + run.size(0)), run);
    filled += run.size(0);
    run = {};
  }
  under_way_.reset();
  require(filled == whole, ErrorCode::rank,
          "block {}: the ranks have {} of its {} bytes of weights; start all on one model", block,
          filled, whole);
  const int after = block + 1 < std::min(shards.blocks.end, end_) ? block + 1
                    : call_follows_ ? static_cast<int>(shards.blocks.begin)
                                    : -1;
  if (after >= 0) under_way_.emplace(launch(after, shards));
  return block_;
}

Tensor BlockGather::whole(const Tensor& own_part, std::span<const nn::Range> runs) {
  require(std::ssize(runs) == ranks_.size(), ErrorCode::usage, "runs of {} ranks; there are {}",
          runs.size(), ranks_.size());
  block_ = {};  // end of its turn
  int64_t longest = 0;
  for (const nn::Range& run : runs) longest = std::max(longest, run.size());
  const int64_t chunk = kPassing / ranks_.size();
  const Tensor buffer = room_for(runs.back().end, own_part.device());
  for (int64_t at = 0; at < longest; at += chunk) {
    const auto within = [&](const nn::Range& run) {
      return nn::Range{std::min(at, run.size()), std::min(at + chunk, run.size())};
    };
    const nn::Range own = within(runs[static_cast<size_t>(ranks_.rank())]);
    auto parts =
        comm::all_gather(ranks_, own_part.slice(0, own.begin, own.end), {operation_, -1}).wait();
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const nn::Range part = within(runs[rank]);
      require(parts[rank].dtype() == tensor::DType::u8 &&
                  parts[rank].shape() == tensor::Shape{part.size()},
              ErrorCode::rank,
              "rank {} sends {} {} of weights besides its blocks, where {} bytes are expected;"
              " start all ranks on one model",
              ranks_.in_world(static_cast<int>(rank)), tensor::name_of(parts[rank].dtype()),
              parts[rank].shape().str(), part.size());
      const int64_t begin = runs[rank].begin;
      copy(buffer.slice(0, begin + part.begin, begin + part.end), parts[rank]);
      parts[rank] = {};
    }
  }
  return buffer;
}

}  // namespace tessera::parallel
