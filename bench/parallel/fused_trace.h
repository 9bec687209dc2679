#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "fused/operator.h"
#include "fused_links.h"

namespace tessera::bench {

inline double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// A timed span of work on a rank's processor.
struct Span {
  std::string name;
  int processor = 0;
  Clock::time_point begin, end;
};

/// Work of a rank's actors in a step, with the added time of an expert's row.
class RankTrace final : public fused::TaskWatch {
 public:
  RankTrace(int rank, int processors, int64_t parts)
      : rank_(rank), parts_(parts), since_(size_t(processors)) {}
  double row_seconds = 0;

  void begins(int processor, const fused::Task& task) override {
    const auto now = Clock::now();
    since_[size_t(processor)] = now;
    if (task.kind != fused::TaskKind::up) return;
    {
      const std::lock_guard lock(mutex_);
      if (first_ == Clock::time_point{}) first_ = now;
      if (task.peer != rank_ && first_remote_ == Clock::time_point{}) first_remote_ = now;
    }
    sleep(row_seconds * task.rows / double(parts_));
  }
  void ends(int processor, const fused::Task& task) override {
    const auto begin = since_[size_t(processor)], now = Clock::now();
    const std::lock_guard lock(mutex_);
    ++tasks;
    busy += seconds(now - begin);
    if (task.kind == fused::TaskKind::dispatch) last_dispatch_ = now;
    if (keeps) spans.push_back({name_of(task), processor, begin, now});
  }
  void polled(const fused::Coordinator& coordinator) override {
    if (coordinator.scheduler().idle_while_ready()) ++idle_while_ready;
  }

  void count_anew() {
    tasks = idle_while_ready = 0;
    busy = 0;
  }
  void begin_step(bool keep) {
    keeps = keep;
    first_ = first_remote_ = last_dispatch_ = {};
  }
  /// Seconds from `begin` to the first tile; negative: none.
  double first(Clock::time_point begin) const {
    return first_ == Clock::time_point{} ? -1 : seconds(first_ - begin);
  }
  /// Seconds from `begin` to the first tile of another rank's rows; negative: none.
  double first_remote(Clock::time_point begin) const {
    return first_remote_ == Clock::time_point{} ? -1 : seconds(first_remote_ - begin);
  }
  /// True if that tile began before this rank's last rows had left.
  bool overlaps() const {
    return first_remote_ != Clock::time_point{} && first_remote_ < last_dispatch_;
  }

  int64_t tasks = 0, idle_while_ready = 0;
  double busy = 0;
  bool keeps = false;
  std::vector<Span> spans;

 private:
  static std::string name_of(const fused::Task& task) {
    constexpr const char* kNames[] = {"none", "gate",      "shared",  "dispatch", "up",
                                      "down", "give back", "collect", "combine"};
    const char* const kind = kNames[int(task.kind)];
    return task.rows == 0 ? fmt::format("{} {}", kind, task.index)
                          : fmt::format("{} rank {} expert {} tile {}", kind, task.peer,
                                        task.expert, task.index);
  }
  const int rank_;
  const int64_t parts_;
  std::mutex mutex_;
  std::vector<Clock::time_point> since_;
  Clock::time_point first_{}, first_remote_{}, last_dispatch_{};
};

/// Writes a file for Chrome's tracing and Perfetto: a process for each rank of each way.
class ChromeTrace {
 public:
  explicit ChromeTrace(const std::string& path) : file_(std::fopen(path.c_str(), "w")) {
    if (!file_) throw Error(ErrorCode::usage, "cannot write '" + path + "'");
    std::fputs("[", file_);
  }
  ~ChromeTrace() {
    std::fputs("\n]\n", file_);
    std::fclose(file_);
  }
  ChromeTrace(const ChromeTrace&) = delete;
  ChromeTrace& operator=(const ChromeTrace&) = delete;

  void add(const std::string& way, size_t rank, Clock::time_point zero,
           const std::vector<Span>& spans) {
    for (const Span& s : spans) {
      fmt::print(file_,
                 "{}\n{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"pid\":\"{} rank {}\","
                 "\"tid\":{},\"ts\":{:.1f},\"dur\":{:.1f}}}",
                 first_ ? "" : ",", s.name, s.name.substr(0, s.name.find(' ')), way, rank,
                 s.processor, seconds(s.begin - zero) * 1e6, seconds(s.end - s.begin) * 1e6);
      first_ = false;
    }
  }

 private:
  std::FILE* file_;
  bool first_ = true;
};

}  // namespace tessera::bench
