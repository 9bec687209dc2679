#include "comm/communicator.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/fail.h"

namespace tessera::comm {

using Clock = std::chrono::steady_clock;
using tensor::Tensor;

/// Receives from one sender: tickets in the order of their start, messages in that of their
/// arrival.
struct Pending::Queue {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Ledger> ledger;
  std::chrono::milliseconds deadline{};
  uint64_t channel = 0;
  int from = 0;  // world rank
  int64_t given = 0, taken = 0;
  std::map<int64_t, Message> early;  // arrived, for tickets that nobody waits for yet

  Message wait_for(int64_t ticket, const Tag& tag);
  bool arrived(int64_t ticket);
};

bool Pending::Queue::arrived(int64_t ticket) {
  while (!early.contains(ticket)) {
    auto message = transport->inbox().poll(channel, from);
    if (!message) return false;
    early[taken++] = std::move(*message);
  }
  return true;
}

Message Pending::Queue::wait_for(int64_t ticket, const Tag& tag) {
  auto since = Clock::now();
  uint64_t seen = transport->progress(from);
  const auto expired = [&] {
    const uint64_t now = transport->progress(from);
    if (now != seen) {
      seen = now;
      since = Clock::now();
    }
    if (Clock::now() - since < deadline) return;
    fail(ErrorCode::rank,
         "rank {} waited {:.1f} s for '{}'{} from rank {}, which made no progress; see what that "
         "rank "
         "does, or raise --comm-timeout",
         transport->rank(), std::chrono::duration<double>(deadline).count(), tag.operation,
         tag.site < 0 ? "" : fmt::format(" of layer {}", tag.site), from);
  };
  while (!early.contains(ticket)) early[taken++] = transport->inbox().take(channel, from, expired);
  Message message = std::move(early.at(ticket));
  early.erase(ticket);
  if (message.arrival) message.data = message.arrival->wait(expired);
  return message;
}

bool Pending::done() {
  if (!queue_ || !queue_->arrived(ticket_)) return false;
  const auto& arrival = queue_->early.at(ticket_).arrival;
  return !arrival || arrival->ready();
}

Tensor Pending::wait() {
  require(queue_ != nullptr, ErrorCode::rank, "a receive was waited for twice");
  const auto queue = std::exchange(queue_, nullptr);
  const auto begin = Clock::now();
  Message message = queue->wait_for(ticket_, tag_);
  const auto end = Clock::now();
  queue->transport->advance();
  queue->ledger->received(tag_, std::chrono::duration<double>(end - begin).count(),
                          std::chrono::duration<double>(end - begin_).count());
  require(
      std::string_view(message.tag.operation) == tag_.operation && message.tag.site == tag_.site,
      ErrorCode::rank,
      "rank {} expected '{}' of layer {} from rank {}, which sent '{}' of layer {}; the ranks run "
      "different programs",
      queue->transport->rank(), tag_.operation, tag_.site, queue->from, message.tag.operation,
      message.tag.site);
  return message.data;
}

std::unique_ptr<Communicator> Communicator::world(std::shared_ptr<Transport> transport,
                                                  std::chrono::milliseconds deadline) {
  std::unique_ptr<Communicator> all(new Communicator);
  all->members_.resize(static_cast<size_t>(transport->size()));
  std::iota(all->members_.begin(), all->members_.end(), 0);
  all->rank_ = transport->rank();
  all->transport_ = std::move(transport);
  all->ledger_ = std::make_shared<Ledger>();
  all->deadline_ = deadline;
  all->channel_ = 1;
  all->queues_.resize(all->members_.size());
  return all;
}

Communicator::~Communicator() {
  if (transport_ && channel_ != 1) transport_->inbox().close(channel_);
}

void Communicator::check_rank(int rank, const Tag& tag) const {
  require(rank >= 0 && rank < size(), ErrorCode::rank, "'{}' names rank {} of a group of {}",
          tag.operation, rank, size());
}

void Communicator::send(int to, Tensor data, const Tag& tag) {
  check_rank(to, tag);
  require(data.defined() && data.dense(), ErrorCode::rank, "'{}' sends a tensor that is not dense",
          tag.operation);
  if (to != rank_) ledger_->sent(tag, data.bytes());
  transport_->send(members_[static_cast<size_t>(to)], channel_, {tag, std::move(data)});
  transport_->advance();
}

Pending Communicator::receive(int from, const Tag& tag) {
  check_rank(from, tag);
  auto& queue = queues_[static_cast<size_t>(from)];
  if (!queue) {
    queue = std::make_shared<Pending::Queue>();
    queue->transport = transport_;
    queue->ledger = ledger_;
    queue->deadline = deadline_;
    queue->channel = channel_;
    queue->from = members_[static_cast<size_t>(from)];
  }
  Pending pending;
  pending.queue_ = queue;
  pending.ticket_ = queue->given++;
  pending.tag_ = tag;
  pending.begin_ = Clock::now();
  return pending;
}

std::unique_ptr<Communicator> Communicator::group(const std::vector<int>& members) {
  std::unique_ptr<Communicator> part(new Communicator);
  // FNV-1a over what the members agree on: parent, number of the group, list.
  uint64_t hash = 1469598103934665603ull;
  const auto mix = [&](uint64_t value) {
    for (int byte = 0; byte < 8; ++byte, value >>= 8)
      hash = (hash ^ (value & 0xff)) * 1099511628211ull;
  };
  mix(channel_);
  mix(groups_++);
  part->rank_ = -1;
  for (size_t i = 0; i < members.size(); ++i) {
    check_rank(members[i], {"group", -1});
    require(std::count(members.begin(), members.end(), members[i]) == 1, ErrorCode::rank,
            "a group names rank {} twice", members[i]);
    mix(static_cast<uint64_t>(members[i]));
    part->members_.push_back(members_[static_cast<size_t>(members[i])]);
    if (members[i] == rank_) part->rank_ = static_cast<int>(i);
  }
  require(part->rank_ >= 0, ErrorCode::rank, "rank {} asks for a group that it is not in", rank_);
  part->channel_ = hash | 2;  // never the world's 1
  part->transport_ = transport_;
  part->ledger_ = ledger_;
  part->deadline_ = deadline_;
  part->queues_.resize(part->members_.size());
  return part;
}

std::unique_ptr<Communicator> Communicator::over(const Stand& stand) {
  std::vector<int> all(members_.size());
  std::iota(all.begin(), all.end(), 0);
  require(members_ == all && size() == transport_->size(), ErrorCode::rank,
          "a transport stands over a world, not over a group of {} of {} ranks", size(),
          transport_->size());
  auto world = group(all);
  world->transport_ = stand(transport_, deadline_);
  return world;
}

}  // namespace tessera::comm
