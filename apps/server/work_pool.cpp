#include "server/work_pool.h"

#include <algorithm>
#include <utility>

namespace tessera::server {

WorkPool::WorkPool(int threads) : most_(std::max(threads - 1, 1)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

WorkPool::~WorkPool() { close(); }

void WorkPool::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  threads_.clear();
}

void WorkPool::add(const std::string& client, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    lines_[client].works.push_back(std::move(work));
  }
  changed_.notify_one();
}

// Next client by name with work and a free thread. Requires the lock.
std::map<std::string, WorkPool::Line>::iterator WorkPool::next() {
  auto at = lines_.upper_bound(last_);
  for (size_t i = 0; i < lines_.size(); ++i, ++at) {
    if (at == lines_.end()) at = lines_.begin();
    if (!at->second.works.empty() && at->second.running < most_) return at;
  }
  return lines_.end();
}

void WorkPool::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    auto line = lines_.end();
    changed_.wait(lock, [&] { return closing_ || (line = next()) != lines_.end(); });
    if (closing_) return;
    const std::string client = last_ = line->first;
    std::function<void()> work = std::move(line->second.works.front());
    line->second.works.pop_front();
    ++line->second.running;
    lock.unlock();
    work();
    work = {};
    lock.lock();
    line = lines_.find(client);
    --line->second.running;
    if (line->second.works.empty() && line->second.running == 0)
      lines_.erase(line);
    else
      changed_.notify_one();
  }
}

}  // namespace tessera::server
