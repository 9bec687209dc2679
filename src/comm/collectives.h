#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "tessera/error.h"

namespace tessera::comm {

/// Messages from every rank, under way.
class Exchange {
 public:
  /// Results by rank. Once only. `transfers`: receives Tag::transfers of each rank's message.
  std::vector<tensor::Tensor> wait(std::vector<int64_t>* transfers = nullptr);
  bool done();
  /// The exchange of a single rank: its own message.
  static Exchange alone(tensor::Tensor message);

 private:
  friend Exchange all_to_all(Communicator&, std::vector<tensor::Tensor>, const Tag&,
                             std::span<const int64_t>);
  std::vector<Pending> parts_;
  int own_ = 0;
  tensor::Tensor own_part_;
};

/// Message i goes to rank i; sizes may differ and be zero. Sizes travel with the
/// messages. `transfers`: Tag::transfers of the message to each rank, for dry runs; empty: of the
/// tag.
Exchange all_to_all(Communicator& comm, std::vector<tensor::Tensor> messages, const Tag& tag,
                    std::span<const int64_t> transfers = {});
/// The same message to all.
Exchange all_gather(Communicator& comm, const tensor::Tensor& message, const Tag& tag);
/// Sends the message of rank `root` to all.
tensor::Tensor broadcast(Communicator& comm, int root, const tensor::Tensor& message,
                         const Tag& tag);
/// Messages of all at `root`, by rank; empty elsewhere.
std::vector<tensor::Tensor> gather(Communicator& comm, int root, const tensor::Tensor& message,
                                   const Tag& tag);
/// Sums of whole numbers over the ranks, or the largest, element by element; in place, equal on
/// all.
void all_reduce(Communicator& comm, std::span<int64_t> values, const Tag& tag);
void all_reduce_max(Communicator& comm, std::span<int64_t> values, const Tag& tag);
/// The word of `root`, on every rank.
bool agreed(Communicator& comm, int root, bool word, const Tag& tag);
/// Does `work` on each rank; the error of the lowest rank with one, on every rank.
std::optional<Error> first_error(Communicator& comm, const std::function<void()>& work,
                                 const Tag& tag);
/// Returns when all ranks have called.
void barrier(Communicator& comm);

}  // namespace tessera::comm
