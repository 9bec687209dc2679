#include "fused/peer_buffers.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/fail.h"
#include "comm/collectives.h"
#include "comm/file_post.h"
#include "fused/peer_device.h"
#include "kernels/far_memory.h"
#include "tensor/device_pool.h"
#include "tensor/uncounted.h"

namespace tessera::fused {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr comm::Tag kPeerTag{"peer buffers", -1, TrafficKind::control};

std::mutex replacing_places;
std::function<GpuPlace(int)> test_place;  // under the mutex

// A message of each rank.
struct PeerOffer {
  int64_t bytes = 0;
  comm::FilePost::Address post;
};

template <class Value>
std::vector<Value> gather_values(comm::Communicator& group, const Value& value) {
  static_assert(std::is_trivially_copyable_v<Value>);
  const tensor::Uncounted aside(tensor::Counts::work);
  const Tensor message = Tensor::empty({sizeof value}, DType::u8);
  std::memcpy(message.raw(), &value, sizeof value);
  const std::vector<Tensor> messages = comm::all_gather(group, message, kPeerTag).wait();
  std::vector<Value> values(messages.size());
  for (size_t r = 0; r < messages.size(); ++r) {
    require(messages[r].bytes() == sizeof value, ErrorCode::rank,
            "moe=fused: rank {} sent {} bytes about its GPU; expected {}",
            group.in_world(static_cast<int>(r)), messages[r].bytes(), sizeof value);
    std::memcpy(&values[r], messages[r].raw(), sizeof value);
  }
  return values;
}

// Throws the first error on all ranks, with its rank.
void agree(comm::Communicator& group, const std::function<void()>& work) {
  const auto with_rank = [&] {
    try {
      work();
    } catch (const Error& error) {
      fail(error.code(), "moe=fused, rank {}: {}", group.in_world(group.rank()), error.what());
    }
  };
  const tensor::Uncounted aside(tensor::Counts::work);
  if (const auto error = comm::first_error(group, with_rank, kPeerTag)) throw Error(*error);
}

Tensor held(const std::shared_ptr<std::byte>& memory, int64_t bytes) {
  return Tensor::over(tensor::Storage::view(memory.get(), bytes, memory), 0, {bytes}, DType::u8);
}

void require_alike(comm::Communicator& group, const std::vector<PeerOffer>& offers) {
  for (size_t r = 0; r < offers.size(); ++r)
    require(offers[r].bytes == offers[0].bytes, ErrorCode::rank,
            "moe=fused: the buffer of rank {} has {} bytes, that of rank {} {}; all ranks must run "
            "the same program on GPUs of one kind",
            group.in_world(0), offers[0].bytes, group.in_world(static_cast<int>(r)),
            offers[r].bytes);
}

// By NVSHMEM, in the same steps on all ranks; each begins when all have ended the one before.
PeerBuffers open_far_buffers(comm::Communicator& group, int64_t bytes) {
  require_alike(group, gather_values(group, PeerOffer{bytes, {}}));
  kernels::FarRanks ranks{{}, group.rank()};
  for (int r = 0; r < group.size(); ++r) ranks.members.push_back(group.in_world(r));
  kernels::FarJoin join{};
  agree(group, [&] { join = kernels::begin_far_memory(ranks); });
  join = gather_values(group, join)[0];
  agree(group, [&] { kernels::join_far_memory(ranks, join); });
  const int64_t block = kernels::next_far_block(bytes);
  for (const int64_t other : gather_values(group, block))
    require(other == block, ErrorCode::rank,
            "moe=fused: a rank takes block {} of NVSHMEM, this one {}; start the ranks again",
            other, block);
  kernels::FarMemory memory;
  agree(group, [&] { memory = kernels::allocate_far_memory(block, bytes); });
  PeerBuffers buffers{memory.addresses, {held(memory.own, bytes)}};
  buffers.owners[0] = buffers.owners[0].held_as(tensor::MemoryClass::buffers);
  return buffers;
}

}  // namespace

GpuPlace GpuPlace::here(int rank) {
  {
    const std::lock_guard lock(replacing_places);
    if (test_place) return test_place(rank);
  }
  GpuPlace place{comm::Whereabouts::here()};
  if (tensor::has_device())
    tensor::device_pool()->runtime().address().copy(place.address.data(), place.address.size() - 1);
  return place;
}

std::string GpuPlace::device() const {
  std::string text(address.data(), strnlen(address.data(), address.size()));
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return !std::isalnum(c) && c != ':' && c != '.'; }, '?');
  return text;
}

void replace_gpu_places(std::function<GpuPlace(int rank)> place) {
  const std::lock_guard lock(replacing_places);
  test_place = std::move(place);
}

std::vector<GpuPlace> gather_places(comm::Communicator& group) {
  return gather_values(group, GpuPlace::here(group.rank()));
}

bool share_a_gpu(const comm::Communicator& group, const std::vector<GpuPlace>& places) {
  const auto number = [&](size_t r) { return group.in_world(static_cast<int>(r)); };
  bool together = true;
  for (const GpuPlace& place : places)
    together = together && place.process.pid == places[0].process.pid &&
               place.process.machine == places[0].process.machine &&
               place.device() == places[0].device();
  if (together) return true;
  for (size_t r = 0; r < places.size(); ++r)
    for (size_t q = 0; q < r; ++q) {
      const bool near = places[q].process.machine == places[r].process.machine;
      require(near || kernels::has_far_memory(), ErrorCode::plan,
              "moe=fused on GPUs: ranks {} and {} are on different hosts, and this program was "
              "built without NVSHMEM; use moe=bulk",
              number(q), number(r));
      require(
          !near || places[q].device() != places[r].device(), ErrorCode::plan,
          "moe=fused on GPUs: ranks {} and {} are processes on GPU {}; start one process, whose "
          "ranks share it, or give each rank a GPU",
          number(q), number(r), places[r].device());
    }
  return false;
}

PeerBuffers open_peer_buffers(comm::Communicator& group, const std::vector<GpuPlace>& places,
                              int64_t bytes) {
  for (const GpuPlace& place : places)
    if (place.process.machine != places[0].process.machine) return open_far_buffers(group, bytes);
  const auto own = static_cast<size_t>(group.rank());
  const auto number = [&](size_t r) { return group.in_world(static_cast<int>(r)); };
  std::unique_ptr<PeerDevice> device;
  std::unique_ptr<comm::FilePost> post;
  ExportedMemory exported;
  agree(group, [&] {
    device = open_peer_device(group.rank());
    for (size_t r = 0; r < places.size(); ++r) {
      if (r == own) continue;
      const std::string problem = device->problem(places[r].device());
      require(problem.empty(), ErrorCode::plan,
              "its GPU {} cannot write into GPU {} of rank {}: {}; use moe=bulk",
              places[own].device(), places[r].device(), number(r), problem);
    }
    exported = device->allocate(bytes);
    post = std::make_unique<comm::FilePost>();
  });
  const std::vector<PeerOffer> offers = gather_values(group, PeerOffer{bytes, post->address()});
  require_alike(group, offers);
  agree(group, [&] {
    for (size_t r = 0; r < offers.size(); ++r)
      if (r != own) post->send(offers[r].post, exported.file, static_cast<uint32_t>(own));
  });
  PeerBuffers buffers;
  agree(group, [&] {
    for (size_t r = 0; r < places.size(); ++r) {
      const auto memory =
          r == own
              ? exported.memory
              : device->map(post->take(places[r].process.pid, static_cast<uint32_t>(r)), bytes);
      buffers.addresses.push_back(memory.get());
      buffers.owners.push_back(held(memory, bytes));
    }
  });
  buffers.owners[own] = buffers.owners[own].held_as(tensor::MemoryClass::buffers);
  return buffers;
}

}  // namespace tessera::fused
