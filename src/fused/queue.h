#pragma once

#include <cstddef>

#include "fused/task.h"

namespace tessera::fused {

/// Splits zeroed memory into arrays; without memory only measures.
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

/// First in, first out, with a single owner.
struct TaskQueue {
  Task* tasks = nullptr;
  int32_t room = 0, first = 0, count = 0;

  TaskQueue() = default;
  TaskQueue(Carver& memory, int64_t tasks_at_most)
      : tasks(memory.take<Task>(tasks_at_most)), room(static_cast<int32_t>(tasks_at_most)) {}

  TESSERA_ANYWHERE bool empty() const { return count == 0; }
  TESSERA_ANYWHERE void push(const Task& task) { tasks[(first + count++) % room] = task; }
  TESSERA_ANYWHERE Task pop() {
    const Task task = tasks[first];
    tasks[first] = {};  // equal queues are equal bytes
    first = (first + 1) % room;
    --count;
    return task;
  }
  /// Takes the first tile of an expert with at most `rows` rows; false: none.
  TESSERA_ANYWHERE bool take(int32_t expert, int32_t rows, Task& task) {
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

/// Between the scheduler and a processor. The word is 0 when the scheduler may write the task,
/// otherwise the processor may read it; each side stores the word after its use.
struct alignas(64) Doorbell {
  uint64_t word = 0;
  Task task{};
};

/// Words of this machine's memory, as seen by all sharers: data before a store is visible after a
/// load of the stored word.
struct SharedWords {
  static uint64_t load(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
  static void store(uint64_t* word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
};

}  // namespace tessera::fused
