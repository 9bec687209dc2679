#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/fake_runtime.h"

namespace tessera::tensor {

/// A FakeRuntime with recorded copies.
class RecordingRuntime : public FakeRuntime {
 public:
  using FakeRuntime::FakeRuntime;
  using Work = std::vector<std::function<void()>>;
  void copy(const CopyBox& box, CopyWay way, void* stream) override {
    if (stream == nullptr) return FakeRuntime::copy(box, way, nullptr);
    static_cast<Work*>(stream)->push_back([=, this] { FakeRuntime::copy(box, way, nullptr); });
  }
  void* begin_recording() override {
    if (refuses) return nullptr;
    work_ = std::make_unique<Work>();
    return work_.get();
  }
  std::unique_ptr<DeviceGraph> end_recording(void*) override {
    return std::make_unique<Graph>(*this, std::move(*work_));
  }
  int launches = 0;
  bool refuses = false;

 private:
  struct Graph : DeviceGraph {
    Graph(RecordingRuntime& on, Work what) : runtime(on), work(std::move(what)) {}
    void launch(void*) override {
      ++runtime.launches;
      for (const auto& one : work) one();
    }
    RecordingRuntime& runtime;
    Work work;
  };
  std::unique_ptr<Work> work_;
};

/// Serves Device::cuda by a RecordingRuntime until destruction.
struct UseRecordingRuntime {
  UseRecordingRuntime() { use_device(std::make_shared<DevicePool>(runtime)); }
  ~UseRecordingRuntime() { use_device(nullptr); }
  std::shared_ptr<RecordingRuntime> runtime = std::make_shared<RecordingRuntime>();
};

}  // namespace tessera::tensor
