#pragma once

#include <functional>
#include <vector>

#include "fused/coordinator.h"
#include "fused/symmetric_heap.h"
#include "kernels/experts.h"
#include "kernels/scratch.h"
#include "nn/moe/backend.h"

namespace tessera::fused {

/// Settings of a rank's work; results do not depend on them.
struct OperatorOptions {
  int processors = 1;
  int up_parts = 1, down_parts = 1;  ///< tasks of a tile's products
  int slots = 2;                     ///< tiles in computation at once
  int64_t block = 64;                ///< tokens of a combine task
};

/// Chooses the experts of tokens [tokens, hidden].
using Choose = std::function<ops::Routing(const nn::Tensor& tokens)>;

/// Memory for the products of a layer.
struct Destination {
  nn::Tensor rows{};     ///< [tokens * k, hidden]: the experts' rows; undefined: the operator's own
  nn::Tensor result{};   ///< [tokens, hidden]; undefined: the operator's own
  bool combines = true;  ///< false: rows only, without the shared expert and sums
};

/// Observes from the threads of all actors.
class TaskWatch {
 public:
  virtual ~TaskWatch() = default;
  virtual void begins(int processor, const Task& task) = 0;
  virtual void ends(int processor, const Task& task) = 0;
  /// There was news, and ready tasks were handed out.
  virtual void polled(const Coordinator& coordinator) = 0;
};

/// A rank of a distributed MoE layer as a single operator: gate, dispatch, experts and combine are
/// tasks, and run when their inputs are ready. One actor polls, and an actor for each processor
/// works; all may be a single thread. Results equal nn::LocalBackend bit by bit, if rows of a
/// product are independent.
class MoeOperator {
 public:
  /// `owner[e]`: the rank of expert e. `tokens`: the most of this rank. `heap`: of layout.bytes(),
  /// with zero flags and counts before the first epoch; must outlive this object.
  MoeOperator(const Layout& layout, std::vector<int> owner, int64_t tokens,
              const OperatorOptions& options, SymmetricHeap& heap);

  /// Starts the next layer, on all ranks alike; arguments must live until done(). Throws
  /// Error(usage) for invalid tokens or weights.
  void begin(const nn::Tensor& tokens, const nn::Gate& gate, const nn::ExpertWeights& weights);
  /// The same with any choice, whose slots of -1 stay on this rank, and with rows and results at a
  /// place of the caller.
  void begin(const nn::Tensor& tokens, Choose choose, const nn::ExpertWeights& weights,
             const Destination& into);
  /// Looks for arrivals and completions, and acts on them; true for any news. Throws Error(rank)
  /// for impossible counts of a peer.
  bool poll();
  /// True if a processor seems to have a task.
  bool called(int processor) const { return coordinator_.processor(processor).called(words_); }
  /// Executes a task of a processor, if any. Throws Error(usage) when the gate sends an expert more
  /// rows than the layout's room.
  bool work(int processor);
  /// The kind of a processor's task; reliable for the processor's holder only.
  TaskKind next(int processor);
  bool done() const { return coordinator_.done(); }
  /// Rows of this layer have left, as many as places allow.
  bool departed() const { return coordinator_.scheduler().departed(); }
  /// This rank owes nobody a result of this layer.
  bool served() const { return coordinator_.scheduler().served(); }
  /// [tokens, hidden]: routed experts, then the shared expert. After done().
  nn::Tensor result() const;
  /// Memory and work of a layer with tokens on meta on this rank, without the products of its
  /// routed experts; nothing is sent. Returns the result.
  nn::Tensor dry_run(const nn::Tensor& tokens, const nn::Gate& gate,
                     const nn::ExpertWeights& weights);
  nn::Tensor dry_run(const nn::Tensor& tokens, Choose choose, const nn::ExpertWeights& weights,
                     const Destination& into);

  /// The routing of this layer, and the returned rows [tokens * k, hidden].
  const ops::Routing& routing() const { return routing_; }
  const nn::Tensor& rows() const { return rows_; }
  /// Releases the finished layer.
  void forget();

  /// `watch` must outlive the layers; null: no observer.
  void watch(TaskWatch* watch) { watch_ = watch; }
  const Coordinator& coordinator() const { return coordinator_; }
  const SymmetricHeap& heap() const { return heap_; }
  int processors() const { return options_.processors; }

 private:
  void check(const nn::Tensor& tokens, const nn::ExpertWeights& weights) const;
  void take_tokens(const nn::Tensor& tokens, Choose choose, const nn::ExpertWeights& weights,
                   const Destination& into);
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
  int blocks() const;  // blocks of tokens
  int64_t group(int peer, int expert) const { return int64_t{peer} * layout_.experts + expert; }

  Layout layout_;
  int rank_;
  std::vector<int> owner_, place_;  // for each expert: its rank, its index there
  int64_t most_tokens_, slot_rows_;
  OperatorOptions options_;
  SymmetricHeap& heap_;
  std::byte* buffer_;  // the own part of the heap
  Dispatcher dispatcher_;
  kernels::Scratch board_;  // the coordinator's memory
  Coordinator coordinator_;
  SharedWords words_;
  TaskWatch* watch_ = nullptr;

  nn::Tensor tokens_, rows_, shared_inner_, shared_, result_;
  Choose choose_;
  bool combines_ = true;
  nn::ExpertWeights weights_;
  ops::Routing routing_;
  std::vector<kernels::ExpertView> own_experts_;
  ops::Activation activation_{};  // their activation
  const kernels::ExpertTiles* tiles_ = nullptr;
  kernels::ExpertCuts cuts_{};
  int64_t inner_bytes_ = 0;  // inner bytes of a slot
  kernels::Scratch inner_, joined_;
  std::vector<int32_t> pairs_;   // assignments by peer and expert, rising
  std::vector<int64_t> begins_;  // begin of each group of pairs
};

}  // namespace tessera::fused
