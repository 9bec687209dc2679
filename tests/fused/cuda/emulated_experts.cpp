// The separate launches that the operator is compared with.
#include "kernels/cuda/emulation.h"
// Emulation first: the sources below depend on it.
#include "kernels/cuda/experts.cu"
#include "kernels/cuda/experts_sm90.cu"
#include "kernels/cuda/grouping.cu"
