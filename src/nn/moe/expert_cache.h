#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "nn/segments.h"
#include "ops/experts.h"
#include "tensor/storage.h"

namespace tessera::nn {

/// Reads and packs an expert of a layer, `site` of Geometry::experts.
using ReadExpert = std::function<ops::Expert(int site, int64_t expert)>;

/// Experts of all layers of which no more than `capacity` are in memory at once, of one request on
/// one rank: what a pass asks for and is not there is read, and what was asked for the longest time
/// ago leaves for it. The experts that a block of text chose (its coreset; DES) stay until the
/// block ends, as its next pass asks for nearly the same: they leave when nothing else is left,
/// those of the layer before first, whose turn comes last. Results do not depend on what is there.
class ExpertCache {
 public:
  using Key = std::pair<int, int64_t>;  ///< site, expert
  /// Experts that a cache held, the last that was asked for first, and what they take.
  struct Kept {
    Key key;
    ops::Expert expert;
    int64_t bytes = 0;
  };

  /// `capacity` is at least what one call of bank() asks for.
  ExpertCache(int64_t capacity, ReadExpert read) : capacity_(capacity), read_(std::move(read)) {}
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  /// The block that a pass decides of a sequence, and the tokens whose experts are its coreset.
  struct Core {
    Range block, tokens;
  };
  /// Before a pass, by sequence: coresets of other blocks, or sequences, are none any more.
  void begin_pass(std::map<int, Core> cores);
  /// Of the `experts` of a layer those that the tokens of `body` go to, by the ids of a routing i32
  /// [tokens, slots] on the host; the others have no weights. On meta the first stands for all, and
  /// counts nowhere. Throws Error(memory) for more than the capacity, and what reading throws.
  std::vector<ops::Expert> bank(int site, int64_t experts, const Segments& body,
                                const tensor::Tensor& ids);
  /// The same of rows that ranks sent, which do not say whose tokens they are: those of a pass may
  /// be of the coreset of each of its sequences, and count so.
  std::vector<ops::Expert> bank(int site, int64_t experts, const tensor::Tensor& ids);
  /// Into an empty cache, as far as it may hold them: what one over the same weights held.
  void adopt(std::vector<Kept> kept);
  /// All that it holds, which it then holds no more.
  std::vector<Kept> release();
  /// Another capacity from now on; what is too much leaves.
  void resize(int64_t capacity);

  /// Experts that bank() was asked for and that were there, or were read.
  struct Use {
    int64_t hits = 0, misses = 0;
  };
  const Use& use() const { return use_; }
  int64_t capacity() const { return capacity_; }
  /// That are in memory.
  int64_t size() const { return static_cast<int64_t>(recent_.size()); }

 private:
  /// Counts where it was put in, whoever shares it.
  struct Held {
    Held(Kept what, std::set<int> in);
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held();
    Kept kept;
    std::set<int> cores;  // sequences in whose coreset it is
    const std::shared_ptr<tensor::MemoryTracker> memory;
  };
  /// Experts of a layer, and in whose coreset each is.
  using Asked = std::map<int64_t, std::set<int>>;
  Kept read(const Key& key) const;
  Asked asked_by(const Segments& body, const tensor::Tensor& ids) const;
  Asked asked_by(const tensor::Tensor& ids) const;
  std::vector<ops::Expert> shapes(int site, int64_t experts);
  std::vector<ops::Expert> give(int site, int64_t experts, const Asked& asked);
  void leave(int64_t most, int site, const Asked& asked);

  tensor::PageReuse reuse_;
  int64_t capacity_;
  ReadExpert read_;
  std::map<int, Core> cores_;
  std::list<Held> recent_;  // the last that was asked for stands first
  std::map<Key, std::list<Held>::iterator> held_;
  ops::Expert shape_;  // on meta
  Use use_;
};

}  // namespace tessera::nn
