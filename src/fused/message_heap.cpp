#include "fused/message_heap.h"

#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "base/fail.h"
#include "fused/queue.h"
#include "tensor/scope.h"

namespace tessera::fused {
namespace {

using tensor::Tensor;

constexpr comm::Tag kTag{"put", -1};

std::vector<bool> defined(const std::vector<Tensor>& parts) {
  std::vector<bool> flags;
  for (const Tensor& part : parts) flags.push_back(part.defined());
  return flags;
}

std::vector<int> all_of(const comm::Communicator& ranks) {
  std::vector<int> numbers(static_cast<size_t>(ranks.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

/// The header before the bytes.
struct MessageHeap::Head {
  Contents contents = Contents::bytes;
  int64_t at = 0, word = 0;
  uint64_t value = 0;
};

/// Writes arrivals into the memory of its rank, and keeps the memory for late ones.
class MessageHeap::Mailbox {
 public:
  explicit Mailbox(Tensor memory) : memory_(std::move(memory)) {}

  void take(int from, comm::Message message) {
    const std::lock_guard lock(mutex_);
    Sender& sender = senders_[from];
    sender.early.emplace(message.order, std::move(message.data));
    for (auto next = sender.early.begin();
         next != sender.early.end() && next->first == sender.next_order; ++sender.next_order) {
      write(from, next->second);
      next = sender.early.erase(next);
    }
  }

 private:
  struct Sender {
    uint64_t next_order = 0;
    std::map<uint64_t, Tensor> early;  // by order; earlier messages are under way
  };

  // Another rank's message is checked before any write.
  void write(int from, const Tensor& message) const {
    Head head;
    const int64_t capacity = memory_.bytes();
    const int64_t bytes = message.bytes() - static_cast<int64_t>(sizeof head);
    if (bytes >= 0) std::memcpy(&head, message.raw(), sizeof head);
    const auto fits = [capacity](int64_t at, int64_t size) {
      return at >= 0 && size <= capacity && at <= capacity - size;
    };
    const bool put = head.contents == Contents::bytes || head.contents == Contents::both;
    const bool tell = head.contents == Contents::word || head.contents == Contents::both;
    require((put || tell) && (put ? fits(head.at, bytes) : bytes == 0) &&
                (!tell || (fits(head.word, 8) && head.word % 8 == 0)),
            ErrorCode::rank,
            "rank {} sent {} bytes for place {} and the word at {} of a heap of {} bytes; do all "
            "ranks run the same version of the program?",
            from, bytes, head.at, head.word, capacity);
    auto* const memory = static_cast<std::byte*>(memory_.raw());
    if (bytes > 0)
      std::memcpy(memory + head.at, static_cast<const std::byte*>(message.raw()) + sizeof head,
                  static_cast<size_t>(bytes));
    if (tell) SharedWords::store(reinterpret_cast<uint64_t*>(memory + head.word), head.value);
  }

  const Tensor memory_;
  std::mutex mutex_;
  std::map<int, Sender> senders_;  // by number in the world
};

MessageHeap::MessageHeap(comm::Communicator& ranks, std::vector<Tensor> parts)
    : SymmetricHeap(&ranks, ranks.rank(),
                    static_cast<std::byte*>(parts[static_cast<size_t>(ranks.rank())].raw())),
      near_(defined(parts)),
      direct_(ranks, parts),
      channel_(ranks.group(all_of(ranks))) {
  const auto mailbox = std::make_shared<Mailbox>(parts[static_cast<size_t>(ranks.rank())]);
  channel_->listen(
      [mailbox](int from, comm::Message message) { mailbox->take(from, std::move(message)); });
}

void MessageHeap::put(const Transfer& transfer) {
  near(transfer.to) ? direct_.put(transfer) : post(transfer, Contents::bytes);
}

void MessageHeap::signal(const Transfer& transfer) {
  near(transfer.to) ? direct_.signal(transfer) : post(transfer, Contents::word);
}

void MessageHeap::put_signal(const Transfer& transfer) {
  near(transfer.to) ? direct_.put_signal(transfer) : post(transfer, Contents::both);
}

void MessageHeap::post(const Transfer& transfer, Contents contents) {
  const Head head{contents, transfer.at, transfer.word, transfer.value};
  const int64_t bytes = contents == Contents::word ? 0 : transfer.bytes;
  tensor::Scope scope = tensor::current_scope();
  scope.memory = nullptr;  // like memory sent elsewhere
  const tensor::BindScope aside(scope);
  const Tensor message = Tensor::empty({static_cast<int64_t>(sizeof head) + bytes},
                                       tensor::DType::u8, tensor::Device::cpu);
  std::memcpy(message.raw(), &head, sizeof head);
  if (bytes > 0)
    std::memcpy(static_cast<std::byte*>(message.raw()) + sizeof head, memory() + transfer.from,
                static_cast<size_t>(bytes));
  const std::lock_guard lock(mutex_);
  channel_->post(transfer.to, message, kTag);
}

}  // namespace tessera::fused
