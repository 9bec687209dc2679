# Finds the CUDA toolkit; without it every layer builds what stands in for it (no_cuda.cpp).
# Sets TESSERA_HAS_CUDA and, where it is on, enables the language and gives tessera_cuda_options.

set(TESSERA_CUDA AUTO CACHE STRING "Kernels for NVIDIA GPUs: AUTO (where a toolkit is found), ON, OFF")
set_property(CACHE TESSERA_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT TESSERA_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TESSERA_CUDA is '${TESSERA_CUDA}'; choose AUTO, ON or OFF")
endif()

set(TESSERA_HAS_CUDA OFF)
if(NOT TESSERA_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  find_package(CUDAToolkit 12.4 QUIET)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER AND TARGET CUDA::cudart_static)
    set(TESSERA_HAS_CUDA ON)
  elseif(TESSERA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TESSERA_CUDA is ON, but no CUDA toolkit from 12.4 was found; name its compiler "
                        "with -DCMAKE_CUDA_COMPILER=.../bin/nvcc, or configure with -DTESSERA_CUDA=OFF")
  endif()
endif()
message(STATUS "CUDA: ${TESSERA_HAS_CUDA}")

if(TESSERA_HAS_CUDA)
  # Machine code for the A100 family and Hopper; PTX for what comes later.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
  endif()
  if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${ccache_anywhere} ${CCACHE_PROGRAM})
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    # CMake 3.25.1 does not know this compiler's flag.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  add_library(tessera_cuda_options INTERFACE)
  target_compile_options(tessera_cuda_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>")
  if(TESSERA_WERROR)
    target_compile_options(tessera_cuda_options INTERFACE
                           "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
  endif()
endif()

# NVSHMEM carries the rows of moe=fused between hosts: PyPI's nvidia-nvshmem-cu13, or any installation.
set(TESSERA_NVSHMEM OFF CACHE STRING "moe=fused between GPUs of several hosts: AUTO (where NVSHMEM is found), ON, OFF")
set_property(CACHE TESSERA_NVSHMEM PROPERTY STRINGS AUTO ON OFF)
if(NOT TESSERA_NVSHMEM MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TESSERA_NVSHMEM is '${TESSERA_NVSHMEM}'; choose AUTO, ON or OFF")
endif()
set(TESSERA_HAS_NVSHMEM OFF)
if(TESSERA_HAS_CUDA AND NOT TESSERA_NVSHMEM STREQUAL "OFF")
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_EXECUTABLE AND NOT NVSHMEM_ROOT)
    execute_process(COMMAND ${Python3_EXECUTABLE} -c "import nvidia.nvshmem as n; print(next(iter(n.__path__)))"
                    OUTPUT_VARIABLE NVSHMEM_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  find_path(NVSHMEM_INCLUDE nvshmem.h HINTS ${NVSHMEM_ROOT}/include)
  find_library(NVSHMEM_DEVICE libnvshmem_device.a HINTS ${NVSHMEM_ROOT}/lib)
  find_library(NVSHMEM_HOST NAMES nvshmem_host libnvshmem_host.so.3 HINTS ${NVSHMEM_ROOT}/lib)
  if(NVSHMEM_INCLUDE AND NVSHMEM_DEVICE AND NVSHMEM_HOST)
    set(TESSERA_HAS_NVSHMEM ON)
  elseif(TESSERA_NVSHMEM STREQUAL "ON")
    message(FATAL_ERROR "TESSERA_NVSHMEM is ON, but no NVSHMEM was found; install nvidia-nvshmem-cu13 for the Python "
                        "that -DPython3_EXECUTABLE=... names, or name a folder with -DNVSHMEM_ROOT=...")
  endif()
  message(STATUS "NVSHMEM: ${TESSERA_HAS_NVSHMEM}")
endif()
