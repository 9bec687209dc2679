#include "comm/collectives.h"

#include <cstring>
#include <utility>

#include "base/fail.h"

namespace tessera::comm {

using tensor::Tensor;

std::vector<Tensor> Exchange::wait(std::vector<int64_t>* transfers) {
  std::vector<Tensor> messages(parts_.size());
  if (transfers) transfers->assign(parts_.size(), 0);
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (static_cast<int>(i) == own_) {
      messages[i] = std::move(own_part_);
      continue;
    }
    messages[i] = parts_[i].wait();
    if (transfers) (*transfers)[i] = parts_[i].transfers();
  }
  parts_.clear();
  return messages;
}

Exchange Exchange::alone(Tensor message) {
  Exchange exchange;
  exchange.parts_.resize(1);
  exchange.own_part_ = std::move(message);
  return exchange;
}

bool Exchange::done() {
  for (size_t i = 0; i < parts_.size(); ++i)
    if (static_cast<int>(i) != own_ && !parts_[i].done()) return false;
  return true;
}

Exchange all_to_all(Communicator& comm, std::vector<Tensor> messages, const Tag& tag,
                    std::span<const int64_t> transfers) {
  require(static_cast<int>(messages.size()) == comm.size(), ErrorCode::rank,
          "'{}' gives {} messages to {} ranks", tag.operation, messages.size(), comm.size());
  Exchange exchange;
  exchange.own_ = comm.rank();
  exchange.parts_.resize(messages.size());
  for (int i = 0; i < comm.size(); ++i)  // first: a send may wait for the receiver's receive
    if (i != comm.rank()) exchange.parts_[static_cast<size_t>(i)] = comm.receive(i, tag);
  for (int i = 1; i < comm.size(); ++i) {  // each rank begins at another peer
    const int to = (comm.rank() + i) % comm.size();
    Tag one = tag;
    if (!transfers.empty()) one.transfers = transfers[static_cast<size_t>(to)];
    comm.send(to, std::move(messages[static_cast<size_t>(to)]), one);
  }
  exchange.own_part_ = std::move(messages[static_cast<size_t>(comm.rank())]);
  return exchange;
}

Exchange all_gather(Communicator& comm, const Tensor& message, const Tag& tag) {
  return all_to_all(comm, std::vector<Tensor>(static_cast<size_t>(comm.size()), message), tag);
}

Tensor broadcast(Communicator& comm, int root, const Tensor& message, const Tag& tag) {
  if (comm.rank() != root) return comm.receive(root, tag).wait();
  for (int i = 0; i < comm.size(); ++i)
    if (i != root) comm.send(i, message, tag);
  return message;
}

std::vector<Tensor> gather(Communicator& comm, int root, const Tensor& message, const Tag& tag) {
  if (comm.rank() != root) {
    comm.send(root, message, tag);
    return {};
  }
  std::vector<Tensor> messages;
  for (int i = 0; i < comm.size(); ++i)
    messages.push_back(i == root ? message : comm.receive(i, tag).wait());
  return messages;
}

namespace {

template <class Merge>
void merge(Communicator& comm, std::span<int64_t> values, const Tag& tag, Merge merged) {
  if (comm.size() == 1) return;
  const auto count = static_cast<int64_t>(values.size());
  const Tensor own_values = Tensor::empty({count}, tensor::DType::i64);
  if (count > 0) std::memcpy(own_values.raw(), values.data(), values.size_bytes());
  const std::vector<Tensor> messages = all_gather(comm, own_values, tag).wait();
  for (size_t r = 0; r < messages.size(); ++r) {
    require(messages[r].elements() == count && messages[r].dtype() == tensor::DType::i64,
            ErrorCode::rank, "'{}' merges {} and {} numbers", tag.operation, count,
            messages[r].elements());
    if (static_cast<int>(r) == comm.rank()) continue;
    const int64_t* other = messages[r].data<int64_t>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = merged(values[i], other[i]);
  }
}

}  // namespace

void all_reduce(Communicator& comm, std::span<int64_t> values, const Tag& tag) {
  merge(comm, values, tag, [](int64_t a, int64_t b) { return a + b; });
}

void all_reduce_max(Communicator& comm, std::span<int64_t> values, const Tag& tag) {
  merge(comm, values, tag, [](int64_t a, int64_t b) { return a < b ? b : a; });
}

bool agreed(Communicator& comm, int root, bool word, const Tag& tag) {
  Tensor message = Tensor::zeros({1}, tensor::DType::u8);
  if (word) *message.data<uint8_t>() = 1;
  return *broadcast(comm, root, message, tag).data<uint8_t>() != 0;
}

std::optional<Error> first_error(Communicator& comm, const std::function<void()>& work,
                                 const Tag& tag) {
  Tensor word = word_of(nullptr);
  try {
    work();
  } catch (const Error& error) {
    word = word_of(&error);
  }
  for (const Tensor& message : all_gather(comm, word, tag).wait())
    if (auto error = error_of(message)) return error;
  return {};
}

void barrier(Communicator& comm) {
  all_gather(comm, Tensor::empty({0}, tensor::DType::u8), {"barrier", -1}).wait();
}

}  // namespace tessera::comm
