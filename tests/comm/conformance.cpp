#include "conformance.h"

#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/fail.h"
#include "comm/collectives.h"

namespace tessera::comm {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

// `count` numbers that identify sender, receiver and round.
Tensor numbers(int64_t count, int from, int to, int round, Device on = Device::cpu) {
  Tensor t = Tensor::empty({count}, DType::i32);
  for (int64_t i = 0; i < count; ++i)
    t.data<int32_t>()[i] = static_cast<int32_t>(i * 1000000 + from * 10000 + to * 100 + round);
  return t.to(on);
}

void check(bool good, const char* what) { require(good, ErrorCode::rank, "conformance: {}", what); }

void check_numbers(const Tensor& arrived, int64_t count, int from, int to, int round, Device on) {
  check(arrived.device() == on, "a message arrived on another device");
  const Tensor got = arrived.to(Device::cpu);
  check(got.bytes() == count * 4, "a message has another size than it was sent with");
  const Tensor expected = numbers(count, from, to, round);
  check(count == 0 || std::memcmp(got.raw(), expected.raw(), size_t(count) * 4) == 0,
        "a message has another content than it was sent with");
}

int64_t uneven(int from, int to, int round) {
  return (from * 7 + to * 3 + round) % 5 == 0 ? 0 : from * 37 + to * 11 + round;
}

void exchange_uneven(Communicator& world, Device on) {
  for (int round = 0; round < 5; ++round) {
    std::vector<Tensor> out;
    for (int to = 0; to < world.size(); ++to)
      out.push_back(numbers(uneven(world.rank(), to, round), world.rank(), to, round, on));
    const auto in = all_to_all(world, out, {"uneven", round}).wait();
    for (int from = 0; from < world.size(); ++from)
      check_numbers(in[size_t(from)], uneven(from, world.rank(), round), from, world.rank(), round,
                    on);
  }
}

void shapes_travel(Communicator& world, Device on) {
  const int next = (world.rank() + 1) % world.size();
  world.send(next, Tensor::zeros({3, 5}, DType::bf16, on), {"shape", 0});
  world.send(next, Tensor::zeros({0, 7}, DType::f32, on), {"shape", 0});
  for (const auto& [shape, dtype] :
       {std::pair{tensor::Shape{3, 5}, DType::bf16}, std::pair{tensor::Shape{0, 7}, DType::f32}}) {
    const Tensor got =
        world.receive((world.rank() + world.size() - 1) % world.size(), {"shape", 0}).wait();
    check(got.shape() == shape && got.dtype() == dtype && got.device() == on,
          "a message has another shape, dtype or device");
  }
}

void many_in_flight(Communicator& world, Device on) {
  const int next = (world.rank() + 1) % world.size(),
            before = (world.rank() + world.size() - 1) % world.size();
  std::vector<Pending> pending;
  for (int i = 0; i < 200; ++i) {
    world.send(next, numbers(i % 17, world.rank(), next, i % 100, on), {"flood", i});
    pending.push_back(world.receive(before, {"flood", i}));
  }
  for (int i = 199; i >= 0; --i)  // in another order than they were started
    check_numbers(pending[size_t(i)].wait(), i % 17, before, world.rank(), i % 100, on);
}

void large_messages(Communicator& world, Device on) {
  const int64_t count = 1 << 20;
  std::vector<Tensor> out;
  for (int to = 0; to < world.size(); ++to) out.push_back(numbers(count, world.rank(), to, 1, on));
  const auto in = all_to_all(world, out, {"large", 0}).wait();
  for (int from = 0; from < world.size(); ++from)
    check_numbers(in[size_t(from)], count, from, world.rank(), 1, on);
}

// Messages above 16 MB each, followed by small messages.
void huge_messages(Communicator& world, Device on) {
  const int64_t count = (5 << 20) + 3;
  std::vector<Tensor> out, few;
  for (int to = 0; to < world.size(); ++to) {
    out.push_back(numbers(count, world.rank(), to, 2, on));
    few.push_back(numbers(5, world.rank(), to, 3, on));
  }
  auto huge = all_to_all(world, out, {"huge", 0});
  const auto small = all_to_all(world, few, {"few", 0}).wait();
  const auto in = huge.wait();
  for (int from = 0; from < world.size(); ++from) {
    check_numbers(in[size_t(from)], count, from, world.rank(), 2, on);
    check_numbers(small[size_t(from)], 5, from, world.rank(), 3, on);
  }
}

// All other ranks are ready long before rank 0.
void one_rank_is_slow(Communicator& world, Device on) {
  std::vector<Exchange> under_way;
  for (int round = 0; round < 15; ++round) {
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(4));
    std::vector<Tensor> out;
    for (int to = 0; to < world.size(); ++to)
      out.push_back(numbers(uneven(world.rank(), to, round) * 50, world.rank(), to, round, on));
    under_way.push_back(all_to_all(world, out, {"slow", round}));
  }
  for (int round = 0; round < 15; ++round) {
    const auto in = under_way[size_t(round)].wait();
    for (int from = 0; from < world.size(); ++from)
      check_numbers(in[size_t(from)], uneven(from, world.rank(), round) * 50, from, world.rank(),
                    round, on);
  }
}

void groups_do_not_mix(Communicator& world, Device on) {
  std::vector<int> mine, all(size_t(world.size()));
  for (int r = 0; r < world.size(); ++r) {
    all[size_t(world.size() - 1 - r)] = r;
    if (r % 2 == world.rank() % 2) mine.push_back(r);
  }
  const auto half = world.group(mine);
  const auto reversed = world.group(all);
  check(reversed->rank() == world.size() - 1 - world.rank(),
        "a group has another order than its list");
  auto on_world = all_gather(world, numbers(3, world.rank(), 0, 1, on), {"same", 0});
  auto on_half = all_gather(*half, numbers(3, world.rank(), 0, 2, on), {"same", 0});
  auto on_reversed = all_gather(*reversed, numbers(3, world.rank(), 0, 3, on), {"same", 0});
  const auto c = on_reversed.wait(), b = on_half.wait(), a = on_world.wait();
  for (int r = 0; r < world.size(); ++r) {
    check_numbers(a[size_t(r)], 3, r, 0, 1, on);
    check_numbers(c[size_t(world.size() - 1 - r)], 3, r, 0, 3, on);
  }
  for (size_t i = 0; i < mine.size(); ++i) check_numbers(b[i], 3, mine[i], 0, 2, on);
}

void broadcasts_and_gathers(Communicator& world, Device on) {
  for (int root = 0; root < world.size(); ++root) {
    check_numbers(broadcast(world, root, numbers(5, world.rank(), root, 0, on), {"tell", root}), 5,
                  root, root, 0, on);
    const auto all =
        gather(world, root, numbers(world.rank(), world.rank(), root, 1, on), {"ask", root});
    check(all.size() == (world.rank() == root ? size_t(world.size()) : 0),
          "gather gave to others than the root");
    for (size_t r = 0; r < all.size(); ++r) check_numbers(all[r], int64_t(r), int(r), root, 1, on);
  }
  barrier(world);
}

void dropped_receives_are_forgotten(Communicator& world, Device on) {
  const int next = (world.rank() + 1) % world.size(),
            before = (world.rank() + world.size() - 1) % world.size();
  for (int i = 0; i < 3; ++i) world.send(next, numbers(4, world.rank(), next, i, on), {"drop", i});
  world.receive(before, {"drop", 0});
  world.receive(before, {"drop", 1});
  check_numbers(world.receive(before, {"drop", 2}).wait(), 4, before, world.rank(), 2, on);
}

void closed_groups_drop_their_messages(Communicator& world, Device on) {
  std::vector<int> all(size_t(world.size()));
  for (int r = 0; r < world.size(); ++r) all[size_t(r)] = r;
  for (int round = 0; round < 20; ++round) {
    const auto request = world.group(all);
    const auto pending =
        all_gather(*request, numbers(9, world.rank(), 0, round, on), {"left", round});
  }
  exchange_uneven(world, on);
}

// A failed rank ends all waits of a request; the next request finds no trace of the failure.
void requests_end_alone(Communicator& world, Device on) {
  const int next = (world.rank() + 1) % world.size(),
            before = (world.rank() + world.size() - 1) % world.size();
  std::vector<int> all(size_t(world.size()));
  for (int r = 0; r < world.size(); ++r) all[size_t(r)] = r;
  for (int round = 0; round < 10; ++round) {
    const auto request = world.request();
    const int fails = round % (world.size() + 1);  // or no rank
    const auto hop = [&, ring = request->group(all)](int i) {
      ring->send(next, numbers(9, world.rank(), next, round, on), {"hop", i});
      request->send(next, numbers(5, world.rank(), next, round, on), {"left", i});
      check_numbers(ring->receive(before, {"hop", i}).wait(), 9, before, world.rank(), round, on);
    };
    try {
      for (int i = 0; i < 6; ++i) {
        if (world.rank() == fails && i == round % 5) {
          request->fail_all({ErrorCode::memory, "rank " + std::to_string(fails)});
          request->check();
        }
        hop(i);
      }
      check(world.rank() != fails, "a rank that failed went on");
    } catch (const Error& error) {
      check(error.code() == ErrorCode::memory && error.what() == "rank " + std::to_string(fails),
            error.what());
    }
    barrier(world);
  }
  exchange_uneven(world, on);
}

// A flood in both directions of each pair, host messages between those of the device.
void both_ways_at_once(Communicator& world, Device on) {
  const auto size_of = [](int from, int to, int i) {
    return int64_t{i % 7 == 0 ? 0 : 1 + (from * 5 + to * 3 + i * i) % 3000};
  };
  const int me = world.rank();
  std::vector<std::vector<Pending>> pending(size_t(world.size()));
  for (int i = 0; i < 40; ++i)
    for (int peer = 0; peer < world.size(); ++peer) {
      world.send(peer, numbers(size_of(me, peer, i), me, peer, i, i % 3 == 0 ? Device::cpu : on),
                 {"both", i});
      pending[size_t(peer)].push_back(world.receive(peer, {"both", i}));
    }
  for (int i = 0; i < 40; ++i)
    for (int peer = 0; peer < world.size(); ++peer)
      check_numbers(pending[size_t(peer)][size_t(i)].wait(), size_of(peer, me, i), peer, me, i,
                    i % 3 == 0 ? Device::cpu : on);
}

// Received messages are forwarded at once, and their memory is reused.
void passed_around(Communicator& world, Device on) {
  const int next = (world.rank() + 1) % world.size(),
            before = (world.rank() + world.size() - 1) % world.size();
  Tensor x = numbers(5000, world.rank(), 0, 7, on);
  for (int hop = 0; hop < 3 * world.size(); ++hop) {
    world.send(next, std::move(x), {"hop", hop});
    const Tensor other = Tensor::zeros({5000}, DType::i32, on);
    x = world.receive(before, {"hop", hop}).wait();
  }
  check_numbers(x, 5000, world.rank(), 0, 7, on);
}

// A listener receives every message of every sender once, with its number; posted messages are not
// counted.
void listeners_hear_all(Communicator& world, Device) {
  constexpr int kRounds = 50;
  std::vector<int> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(r);
  struct Heard {
    std::mutex mutex;
    std::vector<std::vector<int>> from;  // by sender: how often each number came
    int count = 0;
  };
  const auto heard = std::make_shared<Heard>();
  heard->from.assign(size_t(world.size()), std::vector<int>(kRounds));
  const auto channel = world.group(all);
  channel->listen([heard, me = world.rank()](int from, Message message) {
    const auto round = static_cast<int>(message.order);
    check_numbers(message.data, uneven(from, me, round), from, me, round, Device::cpu);
    const std::lock_guard lock(heard->mutex);
    ++heard->from.at(size_t(from)).at(size_t(round));
    ++heard->count;
  });
  barrier(world);
  const int64_t counted = world.ledger().total().messages;
  for (int round = 0; round < kRounds; ++round)
    for (int to = 0; to < world.size(); ++to)
      channel->post(to, numbers(uneven(world.rank(), to, round), world.rank(), to, round),
                    {"post", 0});
  check(world.ledger().total().messages == counted, "the ledger counts what is posted");
  const auto whole = [&] {
    const std::lock_guard lock(heard->mutex);
    return heard->count == kRounds * world.size();
  };
  while (!whole()) {
    world.check();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const auto& sender : heard->from)
    for (const int times : sender) check(times == 1, "a message was heard twice, or never");
  barrier(world);
}

}  // namespace

std::vector<ConformanceCase> conformance_cases(Device on) {
  std::vector<ConformanceCase> cases;
  for (int ranks : {1, 2, 3, 4, 8}) {
    const auto add = [&](const char* name, void (*body)(Communicator&, Device)) {
      cases.push_back({name, ranks, [=](Communicator& world) { body(world, on); }});
    };
    add("ExchangeUneven", exchange_uneven);
    add("ShapesTravel", shapes_travel);
    add("ManyInFlight", many_in_flight);
    if (ranks <= 4) add("LargeMessages", large_messages);
    if (ranks == 2) add("HugeMessages", huge_messages);
    add("OneRankIsSlow", one_rank_is_slow);
    add("GroupsDoNotMix", groups_do_not_mix);
    add("BroadcastsAndGathers", broadcasts_and_gathers);
    add("DroppedReceivesAreForgotten", dropped_receives_are_forgotten);
    add("ClosedGroupsDropTheirMessages", closed_groups_drop_their_messages);
    if (on == Device::cpu) add("ListenersHearAll", listeners_hear_all);
    if (on == Device::cpu) add("RequestsEndAlone", requests_end_alone);
    add("BothWaysAtOnce", both_ways_at_once);
    add("PassedAround", passed_around);
  }
  return cases;
}

}  // namespace tessera::comm
