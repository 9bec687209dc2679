#include "comm/nccl/launch.h"

#include <cstring>

#include "base/fail.h"
#include "comm/nccl/nccl_transport.h"
#include "tensor/device_pool.h"

namespace tessera::comm::nccl {
namespace {

using tensor::Tensor;

constexpr Tag kTag{"nccl", -1, TrafficKind::control};

// From the sender of a link to the receiver.
UniqueId agreed_id(Communicator& world, int from, int to, const Functions& nccl) {
  UniqueId id{};
  if (world.rank() == from) {
    check(nccl, nccl.get_unique_id(&id), "ncclGetUniqueId", to);
    const Tensor message = Tensor::empty({sizeof id}, tensor::DType::u8);
    std::memcpy(message.raw(), &id, sizeof id);
    world.send(to, message, kTag);
    return id;
  }
  const Tensor message = world.receive(from, kTag).wait();
  require(message.bytes() == sizeof id, ErrorCode::rank,
          "rank {} sent {} bytes for NCCL's id, expected {}", from, message.bytes(), sizeof id);
  std::memcpy(&id, message.raw(), sizeof id);
  return id;
}

}  // namespace

std::unique_ptr<Communicator> over(Communicator& world, const Functions& nccl) {
  require(
      world.size() <= kMostRanks, ErrorCode::plan,
      "{} ranks with a GPU each: the nccl transport serves up to {}; use fewer, or `device` cpu",
      world.size(), kMostRanks);
  const int multiprocessors = tensor::device_pool()->runtime().multiprocessors();
  require(
      multiprocessors >= kBlocks, ErrorCode::plan,
      "this GPU has {} multiprocessors, and transfers between ranks with a GPU each may need {} "
      "at once: use one rank, or `device` cpu",
      multiprocessors, kBlocks);
  return world.over([&](std::shared_ptr<Transport> host, std::chrono::milliseconds deadline) {
    const auto transport = std::make_shared<NcclTransport>(std::move(host), deadline, nccl);
    // All ranks open links in this order, in turn, while nothing else runs: both ranks of the
    // first closed link wait for each other.
    for (int from = 0; from < world.size(); ++from)
      for (int to = 0; to < world.size(); ++to)
        if (from != to && (from == world.rank() || to == world.rank()))
          transport->transfer_queue().open(from, to, agreed_id(world, from, to, nccl));
    transport->start();
    return transport;
  });
}

}  // namespace tessera::comm::nccl
