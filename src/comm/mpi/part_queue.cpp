#include "comm/mpi/part_queue.h"

#include <algorithm>

namespace tessera::comm::mpi {

std::optional<PartQueue::Part> PartQueue::next() {
  if (under_way_ >= kAtOnce || remaining_.empty()) return std::nullopt;
  const auto first =
      std::min_element(remaining_.begin(), remaining_.end(), [](const auto& a, const auto& b) {
        return a.second.end - a.second.begin < b.second.end - b.second.begin;
      });
  auto& [begin, end] = first->second;
  Part part{first->first, begin, std::min(kPart, end - begin), false};
  begin += part.size;
  part.last = begin == end;
  if (part.last) remaining_.erase(first);
  under_way_ += part.size;
  return part;
}

}  // namespace tessera::comm::mpi
