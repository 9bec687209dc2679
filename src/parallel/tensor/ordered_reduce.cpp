#include "parallel/tensor/ordered_reduce.h"

#include <algorithm>
#include <utility>

#include "comm/collectives.h"
#include "ops/elementwise.h"

namespace tessera::parallel {

using tensor::Tensor;

// All but the last in multiples of the ranks: traffic equals the traffic of a single chunk.
std::vector<nn::Range> OrderedReduce::chunks_of(int64_t rows) const {
  const int64_t ranks = group_.size(), count = std::clamp(rows / least_, int64_t{1}, kMostChunks);
  const int64_t chunk_rows = (rows + count * ranks - 1) / (count * ranks) * ranks;
  std::vector<nn::Range> chunks{{0, std::min(chunk_rows, rows)}};
  while (chunks.back().end < rows)
    chunks.push_back({chunks.back().end, std::min(chunks.back().end + chunk_rows, rows)});
  return chunks;
}

Tensor OrderedReduce::sum(int64_t rows, const Part& part, const Finish& finish) {
  const comm::Tag tag{"reduce", -1};
  const auto run_of = [&](nn::Range chunk, int rank) {
    return nn::split(chunk, group_.size(), rank);
  };
  std::vector<comm::Exchange> finished;
  const auto finish_mine = [&](nn::Range chunk, comm::Exchange& travelling) {
    const std::vector<Tensor> parts = travelling.wait();
    Tensor sum = parts[0];
    for (size_t r = 1; r < parts.size(); ++r) sum = ops::add(sum, parts[r]);
    const Tensor own_rows = finish(sum, run_of(chunk, group_.rank()));
    finished.push_back(comm::all_gather(group_, own_rows, tag));
  };
  const std::vector<nn::Range> chunks = chunks_of(rows);
  comm::Exchange before;
  for (size_t c = 0; c < chunks.size(); ++c) {
    const Tensor whole = part(chunks[c]);
    std::vector<Tensor> slices;
    for (int r = 0; r < group_.size(); ++r) {
      const nn::Range run = run_of(chunks[c], r);
      slices.push_back(whole.slice(0, run.begin - chunks[c].begin, run.end - chunks[c].begin));
    }
    comm::Exchange travelling = comm::all_to_all(group_, std::move(slices), tag);
    if (c > 0) finish_mine(chunks[c - 1], before);
    before = std::move(travelling);
  }
  finish_mine(chunks.back(), before);
  std::vector<Tensor> runs;
  for (comm::Exchange& chunk : finished)
    for (Tensor& run : chunk.wait()) runs.push_back(std::move(run));
  group_.advance();
  return ops::concat_rows(runs);
}

}  // namespace tessera::parallel
