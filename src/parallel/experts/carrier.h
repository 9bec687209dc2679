#pragma once

#include <cstdint>
#include <vector>

#include "comm/collectives.h"
#include "nn/moe/log.h"
#include "nn/seams.h"
#include "tensor/tensor.h"

namespace tessera::parallel {

/// Rows of a layer and step on the way to their experts and back. Owns everything needed.
struct ExpertFlight {
  int site = 0;
  nn::ExpertWeights weights;
  std::vector<int32_t> assignments;  ///< token * k + slot of the rows sent, by rank, then by expert
  std::vector<int64_t> begin;        ///< rank r gets assignments [begin[r], begin[r + 1])
  comm::Exchange dispatch, combine;
  bool computed = false;
  int64_t hidden = 0;     ///< elements of a row
  int64_t row_bytes = 0;  ///< on the wire
  uint64_t turn = 0;      ///< moe=fused: number among the layers of the run
  tensor::Tensor rows;    ///< moe=fused: place of all results
  /// Bytes of rows that this rank holds or waits for.
  int64_t bytes() const {
    return rows.defined() ? rows.bytes() : static_cast<int64_t>(assignments.size()) * row_bytes;
  }
};

/// Carries rows of layers to their experts on other ranks and back, for schedules that read results
/// later. Calls come in the same order on all ranks.
class ExpertCarrier {
 public:
  virtual ~ExpertCarrier() = default;
  virtual int ranks() const = 0;
  /// The rank of an expert.
  virtual int owner(int32_t expert) const = 0;
  /// Sends the rows of `assignments` (token * k + slot, any order): tokens [n, hidden], ids i32 [n,
  /// k].
  virtual ExpertFlight dispatch(int site, const tensor::Tensor& tokens, const tensor::Tensor& ids,
                                const std::vector<int32_t>& assignments,
                                nn::ExpertWeights weights) = 0;
  /// Waits for rows of other ranks, runs the own experts on all of them, sends results back.
  /// `waits`: own results stay for long, and must not keep others' results in memory.
  virtual void compute(ExpertFlight& flight, bool waits) = 0;
  /// Waits for results: rows [tokens * k, hidden] like tokens `like`, with those of the flight's
  /// assignments in place, and zeros for ids of -1.
  virtual tensor::Tensor bring(ExpertFlight& flight, const tensor::Tensor& ids,
                               const tensor::Tensor& like) = 0;
  /// Adds the carrier's own numbers to the log.
  virtual void note(nn::MoeLog&) const {}
  /// Waits until nothing is under way.
  virtual void finish() {}
};

}  // namespace tessera::parallel
