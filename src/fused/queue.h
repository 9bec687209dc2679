#pragma once

#include <cstddef>

#include "fused/task.h"

namespace tessera::fused {

/// Cuts zeroed memory into arrays; without memory it only measures.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(int64_t n) {
    const int64_t at = (bytes_ + alignof(T) - 1) / alignof(T) * alignof(T);
    bytes_ = at + n * static_cast<int64_t>(sizeof(T));
    return memory_ ? reinterpret_cast<T*>(memory_ + at) : nullptr;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  int64_t bytes_ = 0;
};

/// First in, first out, of one owner.
struct TaskQueue {
  Task* tasks = nullptr;
  int32_t room = 0, first = 0, count = 0;

  TaskQueue() = default;
  TaskQueue(Carver& memory, int64_t tasks_at_most)
      : tasks(memory.take<Task>(tasks_at_most)), room(static_cast<int32_t>(tasks_at_most)) {}

  bool empty() const { return count == 0; }
  void push(const Task& task) { tasks[(first + count++) % room] = task; }
  Task pop() {
    const Task task = tasks[first];
    tasks[first] = {};  // equal queues are equal bytes
    first = (first + 1) % room;
    --count;
    return task;
  }
  /// Takes the first one for an expert that has so many rows at most; false: there is none.
  bool take(int32_t expert, int32_t rows, Task& task) {
    for (int32_t i = 0; i < count; ++i) {
      task = tasks[(first + i) % room];
      if (task.expert != expert || task.rows > rows) continue;
      for (; i > 0; --i) tasks[(first + i) % room] = tasks[(first + i - 1) % room];
      (void)pop();
      return true;
    }
    return false;
  }
};

/// Between the scheduler and one processor. The word is 0 when the scheduler may write the task,
/// anything else when the processor may read it: whoever has finished with it stores the word.
struct alignas(64) Doorbell {
  uint64_t word = 0;
  Task task{};
};

/// The words of this machine's memory, as those who share them see them: what was written before a
/// store is there after a load that sees it.
struct SharedWords {
  static uint64_t load(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
  static void store(uint64_t* word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
};

}  // namespace tessera::fused
