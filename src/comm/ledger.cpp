#include "comm/ledger.h"

namespace tessera::comm {

void Ledger::sent(const Tag& tag, int64_t bytes, int64_t messages) {
  Entry& entry = entries_[{tag.operation, tag.site}];
  entry.kind = tag.kind;
  entry.messages += messages;
  entry.bytes += bytes;
}

void Ledger::received(const Tag& tag, double wait_seconds, double flight_seconds) {
  Entry& entry = entries_[{tag.operation, tag.site}];
  entry.kind = tag.kind;
  entry.wait_seconds += wait_seconds;
  entry.flight_seconds += flight_seconds;
}

Ledger::Entries Ledger::since(const Entries& before) const {
  Entries added = entries_;
  for (const auto& [key, old] : before) {
    Entry& entry = added[key];
    entry.messages -= old.messages;
    entry.bytes -= old.bytes;
    entry.wait_seconds -= old.wait_seconds;
    entry.flight_seconds -= old.flight_seconds;
    if (entry.messages == 0 && entry.wait_seconds == 0) added.erase(key);
  }
  return added;
}

Ledger::Entry Ledger::total() const {
  Entry sum;
  for (const auto& [key, entry] : entries_) {
    sum.messages += entry.messages;
    sum.bytes += entry.bytes;
    sum.wait_seconds += entry.wait_seconds;
    sum.flight_seconds += entry.flight_seconds;
  }
  return sum;
}

}  // namespace tessera::comm
