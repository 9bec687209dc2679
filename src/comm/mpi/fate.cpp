#include "comm/mpi/fate.h"

#include <algorithm>

namespace tessera::comm::mpi {

bool Fate::fail(const Error& error, ErrorCode code, int origin, bool lost, Time now) {
  const std::lock_guard lock(mutex_);
  if (!lost) lowest_ = std::min(lowest_, origin);
  if (failure_) return false;
  failure_ = {error, code, origin, lost, now};
  return true;
}

std::optional<Fate::Failure> Fate::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Fate::done(int rank) {
  const std::lock_guard lock(mutex_);
  done_[size_t(rank)] = true;
}

bool Fate::all_done() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(done_.begin(), done_.end(), [](bool done) { return done; });
}

void Fate::signalled(int rank) {
  const std::lock_guard lock(mutex_);
  signalled_[size_t(rank)] = true;
}

std::vector<int> Fate::signalled() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (size_t rank = 0; rank < signalled_.size(); ++rank)
    if (signalled_[rank]) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

void Fate::set_reported() {
  const std::lock_guard lock(mutex_);
  reported_ = true;
}

bool Fate::reported() const {
  const std::lock_guard lock(mutex_);
  return reported_;
}

bool Fate::first_to_fail() const {
  const std::lock_guard lock(mutex_);
  return failure_ && !failure_->lost && failure_->origin == rank_ && lowest_ == rank_;
}

std::exception_ptr Fate::verdict(const std::exception_ptr& own) const {
  const std::lock_guard lock(mutex_);
  if (own) {
    try {
      std::rethrow_exception(own);
    } catch (const Error& error) {
      // An own failure, because waits end with ErrorCode::rank.
      if (failure_->origin == rank_ || error.code() != ErrorCode::rank)
        return std::make_exception_ptr(EchoError(error.code(), error.what()));
    } catch (...) {
      if (failure_->origin == rank_) return own;
    }
  }
  return std::make_exception_ptr(EchoError(failure_->code, failure_->error.what()));
}

}  // namespace tessera::comm::mpi
