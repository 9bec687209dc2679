#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::kernels {

/// A test that needs a GPU: fails with a clear word where there is none.
class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    ASSERT_TRUE(status == cudaSuccess && count > 0)
        << "this test needs an NVIDIA GPU from sm_80: " << cudaGetErrorString(status);
  }

  /// A copy in device memory that lives as long as the test.
  template <class T>
  T* upload(const T* host, int64_t count) {
    void* device = nullptr;
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    EXPECT_EQ(cudaMalloc(&device, bytes + 256), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    memory_.emplace_back(device, cudaFree);
    return static_cast<T*>(device);
  }
  std::byte* upload(const tensor::Tensor& t) { return upload(t.data<std::byte>(), t.bytes()); }
  template <class T>
  T* upload(const std::vector<T>& values) {
    return upload(values.data(), static_cast<int64_t>(values.size()));
  }
  /// Waits for the device and brings a result back.
  void download(const tensor::Tensor& to, const void* from) {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(to.raw(), from, static_cast<size_t>(to.bytes()), cudaMemcpyDeviceToHost),
              cudaSuccess);
  }

 private:
  std::vector<std::unique_ptr<void, cudaError_t (*)(void*)>> memory_;
};

}  // namespace tessera::kernels
