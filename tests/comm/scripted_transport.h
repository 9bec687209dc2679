#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "comm/transport.h"

namespace tessera::comm {

/// A transport with scripted other ranks; messages to them are kept.
class ScriptedTransport : public Transport {
 public:
  explicit ScriptedTransport(int ranks)
      : counts(static_cast<size_t>(ranks)), waits(static_cast<size_t>(ranks), -1) {}
  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(counts.size()); }
  void send(int, uint64_t, Message message) override { sent.push_back(std::move(message)); }
  void await_room(int, const std::function<void()>&) override {}
  Inbox& inbox() override { return inbox_; }
  void advance() override {}
  uint64_t progress(int rank) const override { return counts[static_cast<size_t>(rank)]; }
  void wait_for(int rank) override { waits[0] = rank; }
  int waits_for(int rank) const override { return waits[static_cast<size_t>(rank)]; }
  void fail_all(const Error& error) override { inbox_.fail(error); }

  std::vector<uint64_t> counts;
  std::vector<int> waits;
  std::vector<Message> sent;

 private:
  Inbox inbox_;
};

}  // namespace tessera::comm
