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

/// Experts of all layers with at most `capacity` in memory, for a request on a rank: a pass reads
/// missing experts, and the least recently used leave. Experts chosen by a block of text (the
/// coreset; DES) stay until the block ends, because the next pass asks for nearly the same; they
/// leave last, those of the layer before first, whose next turn is furthest. Results do not depend
/// on the content.
class ExpertCache {
 public:
  using Key = std::pair<int, int64_t>;  ///< site, expert
  /// Experts of a cache, most recently used first, and their bytes.
  struct Kept {
    Key key;
    ops::Expert expert;
    int64_t bytes = 0;
  };

  /// `capacity` covers the requests of a call of bank().
  ExpertCache(int64_t capacity, ReadExpert read) : capacity_(capacity), read_(std::move(read)) {}
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  /// The block decided by a pass in a sequence, and the tokens of its coreset.
  struct Core {
    Range block, tokens;
  };
  /// Before a pass, by sequence: coresets of other blocks, or sequences, end.
  void begin_pass(std::map<int, Core> cores);
  /// The requested ones of the `experts` of a layer: those of the tokens of `body`, by the ids of a
  /// routing i32 [tokens, slots] on the host; others have no weights. On meta the first stands for
  /// all and counts nowhere. Throws Error(memory) above the capacity, and read errors.
  std::vector<ops::Expert> bank(int site, int64_t experts, const Segments& body,
                                const tensor::Tensor& ids);
  /// The same for rows from other ranks, without their sequences: rows of a pass count for the
  /// coresets of all its sequences.
  std::vector<ops::Expert> bank(int site, int64_t experts, const tensor::Tensor& ids);
  /// Fills an empty cache, up to its capacity, from a cache over the same weights.
  void adopt(std::vector<Kept> entries);
  /// Gives all experts away.
  std::vector<Kept> release();
  /// Changes the capacity; excess experts leave.
  void resize(int64_t capacity);

  /// Requests of bank() by hits and reads.
  struct Use {
    int64_t hits = 0, misses = 0;
  };
  const Use& use() const { return use_; }
  int64_t capacity() const { return capacity_; }
  /// Experts in memory.
  int64_t size() const { return static_cast<int64_t>(recent_.size()); }

 private:
  /// Counts at its origin, for any number of holders.
  struct Entry {
    Entry(Kept expert, std::set<int> in);
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();
    Kept item;
    std::set<int> cores;  // sequences with this expert in their coreset
    const std::shared_ptr<tensor::MemoryTracker> memory;
  };
  /// Experts of a layer, with the sequences of each in a coreset.
  using Requests = std::map<int64_t, std::set<int>>;
  Kept read(const Key& key) const;
  Requests requests_of(const Segments& body, const tensor::Tensor& ids) const;
  Requests requests_of(const tensor::Tensor& ids) const;
  std::vector<ops::Expert> shapes(int site, int64_t experts);
  std::vector<ops::Expert> give(int site, int64_t experts, const Requests& requests);
  void leave(int64_t most, int site, const Requests& requests);

  tensor::PageReuse reuse_;
  int64_t capacity_;
  ReadExpert read_;
  std::map<int, Core> cores_;
  std::list<Entry> recent_;  // most recently used first
  std::map<Key, std::list<Entry>::iterator> entries_;
  ops::Expert shape_;  // on meta
  Use use_;
};

}  // namespace tessera::nn
