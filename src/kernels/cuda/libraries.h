#pragma once

#include <cublasLt.h>

namespace tessera::kernels::cuda {

/// The functions of cuBLASLt that kernels call. The library is opened at its first use, so that a
/// program that computes on the CPU never pays for it, and one without it still starts.
struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
};
/// Throws Error(usage) where the library is missing or too old.
const CublasLt& cublas_lt();

}  // namespace tessera::kernels::cuda
