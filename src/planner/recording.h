#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/run_watcher.h"

namespace tessera::planner {

/// An op as its cost is looked up; a recording holds each that occurs once.
struct Op {
  std::string kind;  ///< "matmul", "attention", ...
  double flops = 0, bytes = 0;
  tensor::OpSize size;
  bool operator==(const Op& other) const;
};

/// A way of messages: those of a channel from one rank to another, which are matched in order.
struct Way {
  int from = 0, to = 0;
  uint64_t channel = 0;
};

/// A message as it is sent, without its number.
struct Letter {
  int way = 0;
  int64_t bytes = 0;
  std::string operation;
  int site = -1;
};

/// An event of a rank: computes an op, sends a message, posts a receive, or waits for a posted
/// receive.
struct Event {
  enum class Kind : uint8_t { op, send, expect, wait };
  Kind kind = Kind::op;
  uint32_t id = 0;   ///< of the op, the letter or the way
  uint32_t lag = 0;  ///< of a wait: messages of the way that were expected after this one
  bool operator==(const Event&) const = default;
};

/// A rank's part of a recording, cut where steps begin.
struct RankRecording {
  std::vector<Event> prepare;             ///< before the first step
  std::vector<std::vector<Event>> steps;  ///< those that were rehearsed
  std::vector<Event> gather;              ///< behind the last one
};

/// A run as it was rehearsed: what each rank computes, sends and waits for, without a time. It does
/// not depend on the order in which the ranks' threads ran.
struct Recording {
  std::vector<Op> ops;
  std::vector<Way> ways;
  std::vector<Letter> letters;
  std::vector<RankRecording> ranks;
  int steps = 0;   ///< of the run; those that were rehearsed are the first ones
  int period = 1;  ///< steps after which they repeat, before the last one

  /// The recorded step that stands for step `i` of a run of `of` steps.
  int recorded(int i, int of) const;
  int recorded_steps() const;
  /// Whether all ranks do the same in each recorded step.
  bool steady() const;
  /// A steady one as if so many steps had been recorded.
  void repeat(int kept);
  /// Bytes that all ranks send in the run, and messages.
  double sent_bytes() const;
  double sent_messages() const;
};

/// {"ops": [...], "letters": [...], "ranks": [[["op", 3], ["wait", 1, 0], ...], ...]}.
base::Json to_json(const Recording& recording);

/// Watches a run and makes a recording of it. Bind root() to the thread that starts the run.
class Recorder {
 public:
  explicit Recorder(int ranks);
  ~Recorder();
  tensor::RunWatcher* root();
  /// Takes the events of all ranks since the last call. `steps`, `period`: as in Recording.
  Recording take(int steps, int period);

 private:
  class Rank;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace tessera::planner
