#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>

#include "base/fail.h"
#include "kernels/cuda/spared.h"
#include "kernels/gpu.h"
#include "tensor/staging.h"

namespace tessera::kernels {
namespace {

using tensor::CopyBox;
using tensor::CopyWay;

constexpr int kOldest = 8;  // oldest compute capability
constexpr int64_t kMostPitch = (int64_t{1} << 31) - 1;

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // prevents the next call from reporting the error too
  fail(status == cudaErrorMemoryAllocation ? ErrorCode::memory : ErrorCode::rank,
       "the GPU failed in {}: {}; see nvidia-smi for what it does, or use `device` cpu", call,
       cudaGetErrorString(status));
}

class CudaGraph : public tensor::DeviceGraph {
 public:
  explicit CudaGraph(cudaGraph_t recorded) {
    const cudaError_t status = cudaGraphInstantiate(&graph_, recorded, 0);
    cudaGraphDestroy(recorded);
    check(status, "cudaGraphInstantiate");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch(void* stream) override {
    check(cudaGraphLaunch(graph_, static_cast<cudaStream_t>(stream)), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

class CudaRuntime : public tensor::DeviceRuntime {
 public:
  CudaRuntime(int index, const cudaDeviceProp& properties)
      : index_(index), multiprocessors_(properties.multiProcessorCount), name_(properties.name) {
    // A GPU with access to pageable memory may read an upload's source after the copy call returns.
    int pageable_access = 0;
    check(cudaDeviceGetAttribute(&pageable_access, cudaDevAttrPageableMemoryAccess, index),
          "cudaDeviceGetAttribute");
    if (pageable_access) staging_ = std::make_unique<tensor::Staging>(staging_ways());
  }
  std::string name() const override { return name_; }
  std::string address() const override {
    char text[16] = {};
    check(cudaDeviceGetPCIBusId(text, sizeof text, index_), "cudaDeviceGetPCIBusId");
    return text;
  }
  tensor::DeviceMemory memory() const override {
    check(cudaSetDevice(index_), "cudaSetDevice");
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }
  void enter() override { check(cudaSetDevice(index_), "cudaSetDevice"); }
  void* allocate(int64_t bytes) override {
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(status, "cudaMalloc");
    return memory;
  }
  void free(void* memory) override { check(cudaFree(memory), "cudaFree"); }
  void copy(const CopyBox& box, CopyWay way, void* stream) override {
    if (way == CopyWay::upload && staging_)
      staging_->upload(box, stream);
    else
      queue(box, way, stream);
  }
  void zero(void* to, int64_t bytes, void* stream) override {
    check(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream)),
          "cudaMemsetAsync");
  }
  void synchronise(void* stream) override {
    check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "its work");
  }
  // Relaxed mode: memory may be allocated while this thread records.
  void* begin_recording() override {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    const cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
    if (status != cudaSuccess) cudaStreamDestroy(stream);
    check(status, "cudaStreamBeginCapture");
    return stream;
  }
  std::unique_ptr<tensor::DeviceGraph> end_recording(void* stream) override {
    cudaGraph_t recorded = nullptr;
    const cudaError_t status = cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &recorded);
    cudaStreamDestroy(static_cast<cudaStream_t>(stream));
    check(status, "cudaStreamEndCapture");
    return std::make_unique<CudaGraph>(recorded);
  }
  std::shared_ptr<void> make_stream() override {
    cudaStream_t stream = nullptr;  // independent of the default stream
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    return {stream, [](void* handle) { cudaStreamDestroy(static_cast<cudaStream_t>(handle)); }};
  }
  std::shared_ptr<void> record(void* stream) override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    std::shared_ptr<void> handle(event, [](void* event_handle) {
      cudaEventDestroy(static_cast<cudaEvent_t>(event_handle));
    });
    check(cudaEventRecord(event, static_cast<cudaStream_t>(stream)), "cudaEventRecord");
    return handle;
  }
  void wait(void* stream, void* event) override {
    check(
        cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0),
        "cudaStreamWaitEvent");
  }
  int multiprocessors() const override { return multiprocessors_; }
  void spare(int multiprocessors) override {
    cuda::spared_multiprocessors.store(std::min(multiprocessors, multiprocessors_ / 4),
                                       std::memory_order_relaxed);
  }
  bool done(void* event) override {
    const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(status, "its work");
    return true;
  }

 private:
  static void queue(const CopyBox& box, CopyWay way, void* stream) {
    const cudaMemcpyKind kind = way == CopyWay::upload     ? cudaMemcpyHostToDevice
                                : way == CopyWay::download ? cudaMemcpyDeviceToHost
                                                           : cudaMemcpyDeviceToDevice;
    const auto cuda_stream = static_cast<cudaStream_t>(stream);
    const auto width = static_cast<size_t>(box.width);
    if (box.rows > 1 && box.to_pitch <= kMostPitch && box.from_pitch <= kMostPitch) {
      check(cudaMemcpy2DAsync(box.to, static_cast<size_t>(box.to_pitch), box.from,
                              static_cast<size_t>(box.from_pitch), width,
                              static_cast<size_t>(box.rows), kind, cuda_stream),
            "cudaMemcpy2DAsync");
      return;
    }
    for (int64_t row = 0; row < box.rows; ++row)
      check(cudaMemcpyAsync(static_cast<std::byte*>(box.to) + row * box.to_pitch,
                            static_cast<const std::byte*>(box.from) + row * box.from_pitch, width,
                            kind, cuda_stream),
            "cudaMemcpyAsync");
  }
  tensor::Staging::Ways staging_ways() {
    return {.pinned =
                [](int64_t bytes) {
                  void* memory = nullptr;
                  check(cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocDefault),
                        "cudaHostAlloc");
                  return std::shared_ptr<void>(memory, [](void* pages) { cudaFreeHost(pages); });
                },
            .copy = [](const CopyBox& box, void* stream) { queue(box, CopyWay::upload, stream); },
            .record = [this](void* stream) { return record(stream); },
            .wait =
                [](void* event) {
                  check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "its work");
                }};
  }

  int index_, multiprocessors_;
  std::string name_;
  std::unique_ptr<tensor::Staging> staging_;  // null if the copy call itself reads the source
};

}  // namespace

int gpu_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  require(status == cudaSuccess || status == cudaErrorNoDevice, ErrorCode::usage,
          "`device` cuda: this machine has no NVIDIA driver that serves this program ({}); install "
          "one, or use `device` cpu",
          cudaGetErrorString(status));
  require(count > 0, ErrorCode::usage,
          "`device` cuda: the NVIDIA driver of this machine sees no GPU; use `device` cpu");
  return count;
}

std::shared_ptr<tensor::DeviceRuntime> open_gpu(int index) {
  const int count = gpu_count();
  const std::string others = count > 1 ? fmt::format(" to cuda:{}", count - 1) : "";
  require(0 <= index && index < count, ErrorCode::usage,
          "`device` cuda:{}: this machine has {} GPU{}; choose cuda:0{}", index, count,
          count == 1 ? "" : "s", others);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  require(
      properties.major >= kOldest, ErrorCode::usage,
      "`device` cuda:{}: {} has compute capability {}.{}; the kernels need {}.0 (A100) or newer; "
      "use `device` cpu",
      index, properties.name, properties.major, properties.minor, kOldest);
  return std::make_shared<CudaRuntime>(index, properties);
}

}  // namespace tessera::kernels
