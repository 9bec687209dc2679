#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::nn {

/// [begin, end)
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Part i of n of a range; uneven parts allowed.
inline Range split(Range range, int n, int i) {
  return {range.begin + range.size() * i / n, range.begin + range.size() * (i + 1) / n};
}

/// A run of tokens of a sequence; a sequence is a guidance branch x an image, or a prompt.
struct Segment {
  int sequence = 0;
  Range ids;  ///< positions in the sequence; text stands below 0
  bool operator==(const Segment&) const = default;
};

/// The packed order of axis 0 of a tensor at a seam: [tokens, ...]; padding does not exist.
using Segments = std::vector<Segment>;

/// Tokens in all segments together.
inline int64_t token_count(const Segments& segments) {
  int64_t count = 0;
  for (const Segment& s : segments) count += s.ids.size();
  return count;
}

/// The sequence of each token, in packed order.
inline std::vector<int32_t> sequences_of(const Segments& segments) {
  std::vector<int32_t> sequences;
  sequences.reserve(static_cast<size_t>(token_count(segments)));
  for (const Segment& s : segments)
    sequences.insert(sequences.end(), static_cast<size_t>(s.ids.size()), s.sequence);
  return sequences;
}

}  // namespace tessera::nn
