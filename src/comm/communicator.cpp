#include "comm/communicator.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "comm/patience.h"
#include "tensor/run_watcher.h"
#include "tensor/scope.h"

namespace tessera::comm {

using Clock = std::chrono::steady_clock;
using tensor::Tensor;

/// Receives messages of one sender by number.
struct Pending::Source {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Ledger> ledger;
  std::shared_ptr<Ending> ending;  // end of a request; null: none
  std::chrono::milliseconds deadline{};
  uint64_t channel = 0;
  int from = 0;  // world rank
  uint64_t next_order = 0;
};

/// Brings a failure of a rank in a request to the other ranks, beside their messages.
struct Communicator::Request {
  std::shared_ptr<Ending> ending;
  std::unique_ptr<Communicator> words;
};

namespace {

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::string layer_of(const Tag& tag) {
  return tag.site < 0 ? "" : fmt::format(" of layer {}", tag.site);
}

}  // namespace

Pending::Pending(Pending&& other) noexcept
    : source_(std::exchange(other.source_, nullptr)),
      order_(other.order_),
      tag_(other.tag_),
      begin_(other.begin_),
      memory_(std::move(other.memory_)),
      expected_(other.expected_) {}

Pending& Pending::operator=(Pending&& other) noexcept {
  drop();
  source_ = std::exchange(other.source_, nullptr);
  order_ = other.order_;
  tag_ = other.tag_;
  begin_ = other.begin_;
  memory_ = std::move(other.memory_);
  expected_ = other.expected_;
  return *this;
}

Pending::~Pending() { drop(); }

void Pending::drop() noexcept {
  if (const auto source = std::exchange(source_, nullptr))
    source->transport->inbox().forget(source->channel, source->from, order_);
  if (const auto memory = std::exchange(memory_, nullptr)) memory->arrived(expected_, 0);
}

bool Pending::done() {
  return source_ && source_->transport->inbox().ready(source_->channel, source_->from, order_);
}

Tensor Pending::wait() {
  require(source_ != nullptr, ErrorCode::rank, "a receive was waited for twice");
  const Source& source = *source_;
  Transport& transport = *source.transport;
  auto* const watcher = source.from != transport.rank() ? tensor::run_watcher() : nullptr;
  if (watcher) watcher->waits(source.from, source.channel, order_);
  const auto begin = Clock::now();
  Message message;
  {
    std::optional<Patience> patience;  // an unneeded look at all ranks would cost time
    std::optional<Waiting> waiting;
    if (!transport.inbox().ready(source.channel, source.from, order_))
      waiting.emplace(transport, source.from);
    const auto expired = [&] {
      if (source.ending) source.ending->check();
      if (!patience) patience.emplace(transport, source.deadline);
      if (patience->over())
        fail(ErrorCode::rank,
             "rank {} waited {:.1f} s for '{}'{} from {}; see what that rank does, or raise "
             "`comm_timeout`",
             transport.rank(), patience->seconds(), tag_.operation, layer_of(tag_),
             standstill(transport, source.from));
    };
    message = transport.inbox().take(source.channel, source.from, order_, expired);
    if (message.arrival) message.data = message.arrival->wait(expired);
  }
  if (watcher) watcher->arrives(source.from, source.channel, order_, message.arrived);
  const auto owner = std::exchange(source_, nullptr);
  transport.advance();
  source.ledger->received(tag_, seconds(Clock::now() - begin),
                          seconds(std::max(message.arrived - begin_, Clock::duration{})));
  require(
      std::string_view(message.tag.operation) == tag_.operation && message.tag.site == tag_.site,
      ErrorCode::rank,
      "rank {} expected '{}' of layer {} from rank {}, which sent '{}' of layer {}; the ranks run "
      "different programs",
      transport.rank(), tag_.operation, tag_.site, source.from, message.tag.operation,
      message.tag.site);
  tag_.transfers = message.tag.transfers;
  if (source.from == transport.rank()) return message.data;
  if (const auto memory = std::exchange(memory_, nullptr))
    memory->arrived(expected_, message.data.bytes());
  return message.data.held_as(tensor::MemoryClass::buffers);
}

std::unique_ptr<Communicator> Communicator::world(std::shared_ptr<Transport> transport,
                                                  std::chrono::milliseconds deadline) {
  std::unique_ptr<Communicator> communicator(new Communicator);
  communicator->members_.resize(static_cast<size_t>(transport->size()));
  std::iota(communicator->members_.begin(), communicator->members_.end(), 0);
  communicator->rank_ = transport->rank();
  communicator->transport_ = std::move(transport);
  communicator->ledger_ = std::make_shared<Ledger>();
  communicator->deadline_ = deadline;
  communicator->channel_ = 1;
  communicator->sources_.resize(communicator->members_.size());
  communicator->sent_.resize(communicator->members_.size());
  return communicator;
}

Communicator::~Communicator() {
  if (transport_ && channel_ != 1) close();
}

// Each member receives the number of messages sent to it, and then knows when nothing is under way.
void Communicator::close() noexcept {
  try {
    for (int to = 0; to < size(); ++to) {
      if (to == rank_) continue;
      Message word{{"close", -1}, Tensor::empty({0}, tensor::DType::u8)};
      word.order = sent_[static_cast<size_t>(to)];
      word.last = true;
      transport_->send(members_[static_cast<size_t>(to)], channel_, std::move(word));
    }
    transport_->inbox().close(channel_, size() - 1);
  } catch (...) {
    sent_.clear();  // no memory: messages are kept until the world ends
  }
}

void Communicator::check_rank(int rank, const Tag& tag) const {
  require(rank >= 0 && rank < size(), ErrorCode::rank, "'{}' names rank {} of a group of {}",
          tag.operation, rank, size());
}

void Communicator::send(int to, Tensor data, const Tag& tag) {
  check_rank(to, tag);
  require(data.defined() && data.dense(), ErrorCode::rank, "'{}' sends a tensor that is not dense",
          tag.operation);
  if (to != rank_) ledger_->sent(tag, data.bytes(), tag.transfers);
  if (auto* watcher = tensor::run_watcher(); watcher && to != rank_)
    watcher->sends(in_world(to), channel_, data.bytes(), tag.operation, tag.site, tag.transfers);
  post(to, std::move(data), tag);
}

void Communicator::listen(Listener listener) {
  transport_->inbox().listen(channel_, std::move(listener));
}

void Communicator::post(int to, Tensor data, const Tag& tag) {
  const int receiver = in_world(to);
  if (to != rank_) {
    std::optional<Patience> patience;
    std::optional<Waiting> waiting;
    transport_->await_room(receiver, [&] {
      if (!waiting) waiting.emplace(*transport_, receiver);
      if (!patience) patience.emplace(*transport_, deadline_);
      if (request_) request_->ending->check();
      if (patience->over())
        fail(ErrorCode::rank,
             "rank {} waited {:.1f} s to send '{}'{} to {}; see what that rank does, or raise "
             "`comm_timeout`",
             transport_->rank(), patience->seconds(), tag.operation, layer_of(tag),
             standstill(*transport_, receiver));
    });
    data = data.held_as({});
  }
  hand_over(to, std::move(data), tag);
  transport_->advance();
}

void Communicator::hand_over(int to, Tensor data, const Tag& tag) {
  Message message{tag, std::move(data)};
  message.order = sent_[static_cast<size_t>(to)];
  transport_->send(in_world(to), channel_, std::move(message));
  ++sent_[static_cast<size_t>(to)];  // only after the send: others would wait for the count
}

Pending Communicator::receive(int from, const Tag& tag) {
  check_rank(from, tag);
  auto& source = sources_[static_cast<size_t>(from)];
  if (!source) {
    source = std::make_shared<Pending::Source>();
    source->transport = transport_;
    source->ledger = ledger_;
    if (request_) source->ending = request_->ending;
    source->deadline = deadline_;
    source->channel = channel_;
    source->from = members_[static_cast<size_t>(from)];
  }
  Pending pending;
  transport_->inbox().expect(channel_, source->from, source->next_order);
  pending.order_ = source->next_order++;
  pending.source_ = source;
  pending.tag_ = tag;
  pending.begin_ = Clock::now();
  if (auto* watcher = tensor::run_watcher(); watcher && from != rank_)
    watcher->expects(source->from, channel_, pending.order_);
  if (from != rank_) pending.memory_ = tensor::current_scope().memory;
  if (pending.memory_) pending.expected_ = pending.memory_->expect();
  return pending;
}

Patience Communicator::patience() const { return {*transport_, deadline_}; }

void Communicator::check() const {
  transport_->inbox().check();
  if (request_) request_->ending->check();
}

void Communicator::fail_all(const Error& error) {
  if (!request_ || error.code() == ErrorCode::rank) return transport_->fail_all(error);
  if (!request_->ending->fail(error)) return;
  Communicator& words = *request_->words;
  for (int to = 0; to < words.size(); ++to)  // posts do not wait for room
    if (to != words.rank()) words.hand_over(to, word_of(&error), kControl);
}

std::optional<Error> Communicator::failed() const {
  return request_ ? request_->ending->own() : std::nullopt;
}

std::unique_ptr<Communicator> Communicator::request() {
  std::vector<int> members(members_.size());
  std::iota(members.begin(), members.end(), 0);
  const auto ending = std::make_shared<Ending>();
  auto ranks = group(members), words = group(members);
  words->listen([ending](int, const Message& word) {
    if (const auto error = error_of(word.data)) ending->hear(*error);
  });
  ranks->request_ = std::make_shared<Request>(Request{ending, std::move(words)});
  return ranks;
}

std::unique_ptr<Communicator> Communicator::group(const std::vector<int>& members) {
  std::unique_ptr<Communicator> part(new Communicator);
  // FNV-1a over the members' agreement: parent, number of the group, list.
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
  part->request_ = request_;
  part->deadline_ = deadline_;
  part->sources_.resize(part->members_.size());
  part->sent_.resize(part->members_.size());
  return part;
}

std::unique_ptr<Communicator> Communicator::over(const TransportFactory& factory) {
  std::vector<int> members(members_.size());
  std::iota(members.begin(), members.end(), 0);
  require(members_ == members && size() == transport_->size(), ErrorCode::rank,
          "a transport stands over a world, not over a group of {} of {} ranks", size(),
          transport_->size());
  auto world = group(members);
  world->transport_ = factory(transport_, deadline_);
  return world;
}

}  // namespace tessera::comm
