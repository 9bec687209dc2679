#pragma once

#include <vector>

#include "fused/coordinator.h"
#include "fused/symmetric_heap.h"
#include "kernels/experts.h"
#include "kernels/scratch.h"
#include "nn/moe/backend.h"

namespace tessera::fused {

/// How a rank works; results do not depend on it.
struct Manner {
  int processors = 1;
  int up_parts = 1, down_parts = 1;  ///< tasks that a tile's products are cut into
  int slots = 2;                     ///< tiles that are computed at once
  int64_t block = 64;                ///< tokens of a combine task
};

/// Looks on, from the threads of all actors.
class TaskWatch {
 public:
  virtual ~TaskWatch() = default;
  virtual void begins(int processor, const Task& task) = 0;
  virtual void ends(int processor, const Task& task) = 0;
  /// Something was new, and what is ready has been handed out.
  virtual void polled(const Coordinator& coordinator) = 0;
};

/// One rank of a distributed MoE layer as a single operator: gate, dispatch, experts and combine
/// are tasks that run as soon as what they need is there. One actor polls, one for each processor
/// works; all of them may be one thread. Results are those of nn::LocalBackend bit by bit, where a
/// row of a product depends on no other.
class MoeOperator {
 public:
  /// `owner[e]`: the rank of expert e. `tokens`: of this rank, at most. `heap`: of layout.bytes(),
  /// of which flags and counts are zero before the first epoch; it outlives this.
  MoeOperator(const Layout& layout, std::vector<int> owner, int64_t tokens, const Manner& manner,
              SymmetricHeap& heap);

  /// The next layer, on all ranks alike; what is given outlives done(). Throws Error(usage) for
  /// tokens or weights that do not fit.
  void begin(const nn::Tensor& tokens, const nn::Gate& gate, const nn::ExpertWeights& weights);
  /// Looks for what has come or is done, and what follows; whether there was anything. Throws
  /// Error(rank) for counts of a peer that cannot be.
  bool poll();
  /// Whether a processor seems to have a task.
  bool called(int processor) const { return coordinator_.processor(processor).called(words_); }
  /// Does a task of a processor, if it has one. Throws Error(usage) when the gate sends an expert
  /// more rows than the layout has room for.
  bool work(int processor);
  bool done() const { return coordinator_.done(); }
  /// [tokens, hidden]: routed experts, then the shared one. After done().
  nn::Tensor result() const;
  /// What a layer of tokens on meta would hold and count on this rank, but for the products of its
  /// routed experts; nothing is sent. The result.
  nn::Tensor rehearse(const nn::Tensor& tokens, const nn::Gate& gate,
                      const nn::ExpertWeights& weights);

  /// Who went where, in this layer, and the rows [tokens * k, hidden] that came back.
  const ops::Routing& routing() const { return routing_; }
  const nn::Tensor& rows() const { return rows_; }
  /// Lets go of the layer that is done.
  void forget();

  /// `watch` outlives the layers; null: nobody looks on.
  void watch(TaskWatch* watch) { watch_ = watch; }
  const Coordinator& coordinator() const { return coordinator_; }
  const SymmetricHeap& heap() const { return heap_; }
  int processors() const { return manner_.processors; }

 private:
  void check(const nn::Tensor& tokens, const nn::ExpertWeights& weights) const;
  void take_tokens(const nn::Tensor& tokens, const nn::Gate& gate,
                   const nn::ExpertWeights& weights);
  void take_weights();
  void perform(const Task& task);
  void decide();
  void sort_assignments();
  void count_rows();
  void announce();
  void share(const nn::Range& block);
  void dispatch(const Task& task);
  void multiply(const Task& task);
  kernels::ExpertTile rows_of(const Task& tile) const;
  void join(const TileGroup& group, std::byte* to) const;
  void part(const TileGroup& group, const std::byte* from) const;
  void collect(const Task& task);
  void combine(const Task& task);
  [[noreturn]] void refuse(const Arrival& counts) const;
  const int32_t* pairs(const Task& tile) const;
  nn::Range block(int index) const;
  int blocks() const;  // of tokens
  int64_t group(int peer, int expert) const { return int64_t{peer} * layout_.experts + expert; }

  Layout layout_;
  int rank_;
  std::vector<int> owner_, place_;  // of each expert: its rank, its place there
  int64_t most_tokens_, slot_rows_;
  Manner manner_;
  SymmetricHeap& heap_;
  std::byte* buffer_;  // mine of it
  Dispatcher dispatcher_;
  kernels::Scratch board_;  // the coordinator's memory
  Coordinator coordinator_;
  SharedWords words_;
  TaskWatch* watch_ = nullptr;

  nn::Tensor tokens_, rows_, shared_inner_, shared_, result_;
  const nn::Gate* gate_ = nullptr;
  nn::ExpertWeights weights_;
  ops::Routing routing_;
  std::vector<kernels::ExpertView> mine_;  // my experts
  ops::Activation activation_{};           // of them
  const kernels::ExpertTiles* tiles_ = nullptr;
  kernels::ExpertCuts cuts_{};
  int64_t inner_bytes_ = 0;  // of a slot
  kernels::Scratch inner_, joined_;
  std::vector<int32_t> pairs_;   // assignments by peer and expert, rising
  std::vector<int64_t> begins_;  // of each group of them
};

}  // namespace tessera::fused
