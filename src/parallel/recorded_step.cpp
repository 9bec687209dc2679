#include "parallel/recorded_step.h"

namespace tessera::parallel {

using tensor::Tensor;

namespace {

Tensor copy_of(const Tensor& x) {
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  tensor::copy_into(y, x);
  return y;
}

}  // namespace

bool RecordedStep::record(const Tensor& time, const Tensor& latent) {
  time_ = copy_of(time);
  latent_ = copy_of(latent);
  recording_ = tensor::Recording::attempt([&] { out_ = work_(time_, latent_); });
  if (!recording_) time_ = latent_ = out_ = {};
  return recording_ != nullptr;
}

Tensor RecordedStep::operator()(const Tensor& time, const Tensor& latent) {
  if (!may_ || calls_++ == 0) return work_(time, latent);
  if (recording_) {
    tensor::copy_into(time_, time);
    tensor::copy_into(latent_, latent);
  } else if (!record(time, latent)) {
    may_ = false;
    return work_(time, latent);
  }
  recording_->replay();
  if (experts_) experts_->replayed();
  return copy_of(out_);  // callers may keep the copy; the next replay overwrites out_
}

}  // namespace tessera::parallel
