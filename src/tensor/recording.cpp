#include "tensor/recording.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"

namespace tessera::tensor {

namespace {

// Ends a failed recording; returns whether the device accepted the end.
bool discard(DeviceRuntime& runtime, void* stream) {
  try {
    runtime.end_recording(stream);
    return true;
  } catch (const Error&) {
    return false;  // report the first failure only
  }
}

// TESSERA_GRAPHS=0 disables recording.
bool records_graphs() {
  const char* const text = std::getenv("TESSERA_GRAPHS");
  const std::string_view value = text ? text : "";
  require(value.empty() || value == "0" || value == "1", ErrorCode::usage,
          "TESSERA_GRAPHS={}: expected 0 (record nothing) or 1", base::printable(value));
  return value != "0";
}

}  // namespace

Recording::Recording(std::shared_ptr<DevicePool> pool)
    : pool_(std::move(pool)), arena_(pool_->open_arena()) {}

Recording::~Recording() {
  try {
    if (graph_) pool_->runtime().synchronise(current_scope().stream);
  } catch (...) {
    [[maybe_unused]] DeviceGraph* const lost = graph_.release();  // the device may still read it
  }
  graph_.reset();
  pool_->close_arena(arena_);
}

void Recording::record(const std::function<void()>& work) {
  DeviceRuntime& runtime = pool_->runtime();
  runtime.enter();
  Scope scope = current_scope();
  scope.meter = std::make_shared<Meter>();
  scope.recording = this;
  scope.arena = arena_;
  scope.stream = runtime.begin_recording();
  if (scope.stream == nullptr) return;
  try {
    const BindScope bind(scope);
    work();
  } catch (...) {
    discard(runtime, scope.stream);
    throw;
  }
  graph_ = runtime.end_recording(scope.stream);
  counts_ = scope.meter->entries();
}

std::unique_ptr<Recording> Recording::attempt(const std::function<void()>& work) {
  if (!records_graphs()) return nullptr;
  std::unique_ptr<Recording> recording(new Recording(device_pool()));
  try {
    recording->record(work);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled) throw;
    return nullptr;  // the same failure will appear without a recording, too
  }
  return recording->graph_ ? std::move(recording) : nullptr;
}

void Recording::replay() {
  pool_->runtime().enter();
  graph_->launch(current_scope().stream);
  if (Meter* meter = current_scope().meter.get()) meter->add(counts_);
}

}  // namespace tessera::tensor
