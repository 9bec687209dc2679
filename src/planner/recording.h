#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/run_watcher.h"

namespace tessera::planner {

/// The cost key of an op; a recording holds each distinct op once.
struct Op {
  std::string kind;  ///< "matmul", "attention", ...
  double flops = 0, bytes = 0;
  tensor::OpSize size;
  bool operator==(const Op& other) const;
};

/// A channel from one rank to another; its messages are matched in order.
struct Way {
  int from = 0, to = 0;
  uint64_t channel = 0;
};

/// A message in a channel, without a sequence number.
struct Letter {
  int way = 0;
  int64_t bytes = 0;
  std::string operation;
  int site = -1;
  int64_t count = 1;  ///< a run sends so many messages in its place
};

/// An event of a rank: computes an op, sends a message, posts a receive, or waits for a posted
/// receive.
struct Event {
  enum class Kind : uint8_t { op, send, expect, wait };
  Kind kind = Kind::op;
  uint32_t id = 0;   ///< identifies the op, the letter or the way
  uint32_t lag = 0;  ///< for a wait: counts later messages that the way expected
  bool operator==(const Event&) const = default;
};

/// A rank's part of a recording, split into steps.
struct RankRecording {
  std::vector<Event> prepare;             ///< before the first step
  std::vector<std::vector<Event>> steps;  ///< recorded steps
  std::vector<Event> gather;              ///< after the last step
};

/// A recorded dry run: computation, messages and waits of each rank, without times. Independent of
/// the order in which threads of ranks ran.
struct Recording {
  std::vector<Op> ops;
  std::vector<Way> ways;
  std::vector<Letter> letters;
  std::vector<RankRecording> ranks;
  int steps = 0;   ///< steps of the run; the recording holds the first steps
  int period = 1;  ///< steps per repetition, before the last step

  /// The recorded step for step `i` of a run of `of` steps.
  int recorded(int i, int of) const;
  int recorded_steps() const;
  /// Returns whether each rank does the same in all of its recorded steps.
  bool steady() const;
  /// Extends a recording as if `kept` steps had been recorded: copies of the second one come before
  /// the last.
  void repeat(int kept);
  /// Bytes that all ranks send in the run, and messages.
  double sent_bytes() const;
  double sent_messages() const;
};

/// {"ops": [...], "letters": [...], "ranks": [[["op", 3], ["wait", 1, 0], ...], ...]}.
base::Json to_json(const Recording& recording);

/// Records a run. Bind root() to the thread that starts the run.
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
