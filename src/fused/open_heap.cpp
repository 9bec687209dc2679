#include "fused/open_heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/printable.h"
#include "comm/collectives.h"
#include "comm/whereabouts.h"
#include "fused/direct_heap.h"
#include "fused/message_heap.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::fused {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::MemoryClass;
using tensor::Tensor;

constexpr comm::Tag kTag{"heap", -1, TrafficKind::control};
constexpr int64_t kWord = sizeof(int64_t);  // a rank's word about its memory

// A nameless file, open as long as this object lives; others on the machine open the number.
class SharedFile {
 public:
  explicit SharedFile(int64_t bytes) : file_(memfd_create("tessera", MFD_CLOEXEC)), bytes_(bytes) {
    require(file_ >= 0 && ftruncate(file_, bytes) == 0, ErrorCode::memory,
            "moe=fused: no shared memory of {} bytes: {}; free some, or use moe=bulk", bytes,
            std::strerror(errno));
  }
  SharedFile(int64_t process, int64_t number, int64_t bytes)
      : file_(open(fmt::format("/proc/{}/fd/{}", process, number).c_str(), O_RDWR | O_CLOEXEC)),
        bytes_(bytes) {
    struct stat status {};
    require(file_ >= 0 && fstat(file_, &status) == 0 && status.st_size == bytes, ErrorCode::rank,
            "moe=fused: the shared memory of process {} cannot be opened: {}; let all ranks run as "
            "one user, or use moe=bulk",
            process, file_ < 0 ? std::strerror(errno) : "it has another size");
  }

  int number() const { return file_; }
  /// Mapped until the last owner of the tensor is gone.
  Tensor mapped() const {
    void* const memory =
        mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    require(memory != MAP_FAILED, ErrorCode::memory,
            "moe=fused: {} bytes of shared memory cannot be mapped: {}; free some, or use moe=bulk",
            bytes_, std::strerror(errno));
    const std::shared_ptr<const void> owner(
        memory, [bytes = bytes_](void* p) { munmap(p, static_cast<size_t>(bytes)); });
    return Tensor::over(tensor::Storage::view(memory, bytes_, owner), 0, {bytes_}, DType::u8);
  }

 private:
  base::Descriptor file_;
  int64_t bytes_;
};

template <class Value>
Tensor to_message(const Value& value, Device device) {
  const tensor::Uncounted aside(tensor::Counts::work);
  const Tensor message = Tensor::empty({sizeof value}, DType::u8, device);
  if (!message.is_meta()) std::memcpy(message.raw(), &value, sizeof value);
  return message;
}
template <class Value>
Value from_message(const Tensor& message) {
  Value value{};
  require(message.bytes() == sizeof value, ErrorCode::rank,
          "a rank sent {} bytes of a heap; expected {}", message.bytes(), sizeof value);
  std::memcpy(&value, message.raw(), sizeof value);
  return value;
}

std::vector<Tensor> tell_all(comm::Communicator& group, const Tensor& message) {
  const tensor::Uncounted aside(tensor::Counts::work);
  return comm::all_gather(group, message, kTag).wait();
}

// Each rank's place and requested memory.
struct HeapRequest {
  comm::Whereabouts place;
  HeapSize size;
};

void require_alike(comm::Communicator& group, const std::vector<HeapRequest>& requests) {
  const auto numbers = [](const HeapSize& s) {
    const Layout& l = s.layout;
    return std::array<std::pair<const char*, int64_t>, 11>{{{"lanes", s.lanes},
                                                            {"ranks", l.ranks},
                                                            {"experts of a rank", l.experts},
                                                            {"bytes of a row", l.row_bytes},
                                                            {"rows of a tile", l.tiles.tile},
                                                            {"rows of an expert", l.cell},
                                                            {"rows of a run", l.run},
                                                            {"tiles of an epoch", l.most},
                                                            {"bytes", s.bytes},
                                                            {"bytes of counts", s.zeroed},
                                                            {"bytes before its flags", s.flags}}};
  };
  const auto own_numbers = numbers(requests[static_cast<size_t>(group.rank())].size);
  for (size_t r = 0; r < requests.size(); ++r) {
    const auto peer_numbers = numbers(requests[r].size);
    for (size_t i = 0; i < own_numbers.size(); ++i)
      require(
          peer_numbers[i].second == own_numbers[i].second, ErrorCode::rank,
          "moe=fused: the heap of rank {} has {} {}, that of rank {} {}; all ranks must run the "
          "same program on the same model",
          group.in_world(group.rank()), own_numbers[i].second, own_numbers[i].first,
          group.in_world(static_cast<int>(r)), peer_numbers[i].second);
  }
}

void all_are_ready(comm::Communicator& group, Device device) {
  (void)tell_all(group, Tensor::empty({0}, DType::u8, device));
}

// With TESSERA_HEAP=messages each rank behaves as if on a host of its own, for tests.
comm::Whereabouts whereabouts(int rank) {
  comm::Whereabouts place = comm::Whereabouts::here();
  const char* const way = std::getenv("TESSERA_HEAP");
  if (!way || !*way) return place;
  require(std::string_view(way) == "messages", ErrorCode::usage,
          "TESSERA_HEAP={}: expected messages, or nothing", base::printable(way));
  place.machine += static_cast<uint64_t>(rank) + 1;
  return place;
}

// Each rank's memory goes to the others as a message, without a copy among threads.
std::vector<Tensor> of_threads(comm::Communicator& group, const HeapSize& size,
                               const std::vector<bool>& near) {
  const Tensor own_heap = Tensor::empty({size.bytes}, DType::u8, Device::cpu, MemoryClass::buffers);
  auto* const at = static_cast<std::byte*>(own_heap.raw());
  for (int lane = 0; lane < size.lanes; ++lane) {
    std::byte* const begin = at + size.begin(lane);
    std::memset(begin, 0, static_cast<size_t>(size.zeroed));
    std::memset(begin + size.flags, 0, static_cast<size_t>(size.begin(1) - size.flags));
  }
  std::vector<Tensor> parts = tell_all(group, own_heap.slice(0, 0, kWord));
  parts[static_cast<size_t>(group.rank())] = own_heap;
  for (size_t r = 0; r < parts.size(); ++r)
    if (!near[r]) parts[r] = {};
  all_are_ready(group, Device::cpu);
  return parts;
}

// Undefined for ranks of other hosts.
std::vector<Tensor> of_processes(comm::Communicator& group, const HeapSize& size,
                                 const std::vector<HeapRequest>& requests,
                                 const std::vector<bool>& near) {
  const SharedFile file(size.bytes);  // all zero
  const std::vector<Tensor> files =
      tell_all(group, to_message(int64_t{file.number()}, Device::cpu));
  std::vector<Tensor> parts(near.size());
  std::exception_ptr failed;
  try {
    for (size_t i = 0; i < near.size(); ++i)
      if (static_cast<int>(i) == group.rank())
        parts[i] = file.mapped().held_as(MemoryClass::buffers);
      else if (near[i])
        parts[i] =
            SharedFile(requests[i].place.pid, from_message<int64_t>(files[i]), size.bytes).mapped();
  } catch (const Error&) {
    failed = std::current_exception();
  }
  all_are_ready(group, Device::cpu);  // until then others open this file, after any error here
  if (failed) std::rethrow_exception(failed);
  return parts;
}

}  // namespace

HeapSize heap_of(const Layout& layout, int lanes) {
  const int64_t bytes = lanes == 1 ? layout.bytes() : lanes * whole_lines(layout.bytes());
  return {bytes, layout.count_region(), layout.bytes() - 8 * layout.flags(), layout, lanes};
}

std::unique_ptr<SymmetricHeap> open_heap(comm::Communicator& group, const HeapSize& size,
                                         Device device) {
  const std::vector<Tensor> messages =
      tell_all(group, to_message(HeapRequest{whereabouts(group.rank()), size}, device));
  if (device == Device::meta) {
    std::vector<Tensor> parts(messages.size(),
                              Tensor::empty({size.bytes}, DType::u8, device, MemoryClass::buffers));
    (void)tell_all(group, to_message(int64_t{}, device));
    all_are_ready(group, device);
    return std::make_unique<DirectHeap>(group, std::move(parts));
  }
  std::vector<HeapRequest> ranks;
  for (const Tensor& message : messages) ranks.push_back(from_message<HeapRequest>(message));
  require_alike(group, ranks);
  const comm::Whereabouts own_place = ranks[static_cast<size_t>(group.rank())].place;
  std::vector<bool> near;
  for (const HeapRequest& request : ranks)
    near.push_back(request.place.machine == own_place.machine);
  const int64_t me = getpid();
  bool together = true, threads = true;  // for all ranks
  for (const HeapRequest& request : ranks) {
    together = together && request.place.machine == ranks[0].place.machine;
    threads = threads && request.place.pid == me;
  }
  auto parts = threads ? of_threads(group, size, near) : of_processes(group, size, ranks, near);
  if (together) return std::make_unique<DirectHeap>(group, std::move(parts));
  auto heap = std::make_unique<MessageHeap>(group, std::move(parts));
  all_are_ready(group, device);
  return heap;
}

}  // namespace tessera::fused
