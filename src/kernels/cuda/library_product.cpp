#include "kernels/cuda/library_product.h"

#include <cuda_runtime.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "kernels/cuda/device_scratch.h"
#include "kernels/cuda/libraries.h"
#include "kernels/device_error.h"
#include "tensor/scope.h"

namespace tessera::kernels::cuda {
namespace {

using tensor::DType;

constexpr size_t kWorkspace = size_t{32} << 20;  // NVIDIA's recommendation for Hopper
constexpr const char* kName = "matmul";

void check(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  device_failed(kName, cublas_lt().status_string(status), status == CUBLAS_STATUS_ALLOC_FAILED);
}
void check(cudaError_t status) {
  if (status != cudaSuccess)
    device_failed(kName, cudaGetErrorString(status), status == cudaErrorMemoryAllocation);
}

template <class T, auto Destroy>
struct Handle {
  T value{};
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (value) (cublas_lt().*Destroy)(value);
  }
};
using Desc = Handle<cublasLtMatmulDesc_t, &CublasLt::desc_destroy>;
using Layout = Handle<cublasLtMatrixLayout_t, &CublasLt::layout_destroy>;
using Preference = Handle<cublasLtMatmulPreference_t, &CublasLt::preference_destroy>;

cudaDataType_t type_of(DType dtype) { return dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF; }

template <class T>
void set(const Desc& desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(
      cublas_lt().desc_set(desc.value, attribute, static_cast<const void*>(&value), sizeof(value)));
}

void describe(const LibraryProduct& p, Desc& desc) {
  check(cublas_lt().desc_create(&desc.value, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  // cuBLASLt is column major: y^T [n, rows] = (w^T)^T x^T.
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  if (p.epilogue == LibraryEpilogue::none) return;
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
      p.epilogue == LibraryEpilogue::bias        ? CUBLASLT_EPILOGUE_BIAS
      : p.epilogue == LibraryEpilogue::gelu_tanh ? CUBLASLT_EPILOGUE_GELU
                                                 : CUBLASLT_EPILOGUE_GELU_BIAS);
  if (p.epilogue == LibraryEpilogue::gelu_tanh) return;
  set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
}

void lay_out(Layout& layout, DType dtype, int64_t inner, int64_t outer, int64_t stride) {
  check(cublas_lt().layout_create(&layout.value, type_of(dtype), static_cast<uint64_t>(inner),
                                  static_cast<uint64_t>(outer), stride));
}

cublasLtHandle_t handle_of(int device) {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (!handle) check(cublas_lt().create(&handle));
  return handle;
}

// Cached heuristic choice of the library for a shape: the query takes longer than a small product.
struct Choices {
  using Key = std::array<int64_t, 11>;
  std::mutex mutex;
  std::map<Key, cublasLtMatmulAlgo_t> known;
};

unsigned alignment(const void* p) {
  const uintptr_t low = reinterpret_cast<uintptr_t>(p) & 255;
  return low ? static_cast<unsigned>(low & (~low + 1)) : 256;
}

struct Call {
  Desc desc;
  Layout w, x, y;
};

cublasLtMatmulAlgo_t choose(int device, const LibraryProduct& p, const Call& call) {
  static Choices choices;
  const unsigned aligned[] = {alignment(p.w), alignment(p.x), alignment(p.y)};
  const Choices::Key key{device,
                         p.rows,
                         p.n,
                         p.k,
                         p.x_stride,
                         p.y_stride,
                         static_cast<int64_t>(p.dtype),
                         static_cast<int64_t>(p.y_dtype),
                         static_cast<int64_t>(p.epilogue),
                         p.beta != 0,
                         int64_t{aligned[0]} << 40 | int64_t{aligned[1]} << 20 | aligned[2]};
  const std::lock_guard lock(choices.mutex);
  if (const auto it = choices.known.find(key); it != choices.known.end()) return it->second;
  const CublasLt& lt = cublas_lt();
  Preference preference;
  check(lt.preference_create(&preference.value));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(lt.preference_set(preference.value, attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[0]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[1]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[2]);
  cublasLtMatmulHeuristicResult_t best{};
  int count = 0;
  check(lt.heuristic(handle_of(device), call.desc.value, call.w.value, call.x.value, call.y.value,
                     call.y.value, preference.value, 1, &best, &count));
  if (count == 0) unsupported(kName, "columns", p.n, "a shape that cuBLASLt serves");
  return choices.known[key] = best.algo;
}

}  // namespace

void library_product(const LibraryProduct& p) {
  int device = 0;
  check(cudaGetDevice(&device));
  Call call;
  describe(p, call.desc);
  lay_out(call.w, p.dtype, p.k, p.n, p.k);
  lay_out(call.x, p.dtype, p.k, p.rows, p.x_stride);
  lay_out(call.y, p.y_dtype, p.n, p.rows, p.y_stride);
  const cublasLtMatmulAlgo_t algorithm = choose(device, p, call);
  const auto stream = static_cast<cudaStream_t>(tensor::current_scope().stream);
  const DeviceScratch workspace(kWorkspace);
  const float alpha = 1;
  check(cublas_lt().matmul(handle_of(device), call.desc.value, &alpha, p.w, call.w.value, p.x,
                           call.x.value, &p.beta, p.y, call.y.value, p.y, call.y.value, &algorithm,
                           workspace.as<void>(), kWorkspace, stream));
}

}  // namespace tessera::kernels::cuda
