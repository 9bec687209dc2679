#include "kernels/cuda/libraries.h"

#include <dlfcn.h>

#include <string>

#include "base/fail.h"

namespace tessera::kernels::cuda {
namespace {

// Opens the library of the toolkit's major version: from the loader's path first, then from the
// toolkit's folder.
void* open_library(const std::string& name) {
  for (const std::string& path : {name, std::string(TESSERA_CUDA_LIBRARIES "/") + name})
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const char* reason = dlerror();
  fail(ErrorCode::usage,
       "cannot open {}: {}; install the CUDA toolkit's libraries, or use `device` cpu", name,
       reason ? reason : "unknown error");
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  require(function != nullptr, ErrorCode::usage,
          "cuBLASLt has no {}; install the version of the toolkit that this program was built with",
          name);
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt functions = [] {
    void* library = open_library("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR));
    CublasLt f{};
    find(library, "cublasLtCreate", f.create);
    find(library, "cublasLtGetStatusString", f.status_string);
    find(library, "cublasLtMatmul", f.matmul);
    find(library, "cublasLtMatmulDescCreate", f.desc_create);
    find(library, "cublasLtMatmulDescDestroy", f.desc_destroy);
    find(library, "cublasLtMatmulDescSetAttribute", f.desc_set);
    find(library, "cublasLtMatrixLayoutCreate", f.layout_create);
    find(library, "cublasLtMatrixLayoutDestroy", f.layout_destroy);
    find(library, "cublasLtMatmulPreferenceCreate", f.preference_create);
    find(library, "cublasLtMatmulPreferenceDestroy", f.preference_destroy);
    find(library, "cublasLtMatmulPreferenceSetAttribute", f.preference_set);
    find(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic);
    return f;
  }();
  return functions;
}

}  // namespace tessera::kernels::cuda
