# One library a layer. A layer links what its line in docs/architecture.md names, and nothing else:
# PUBLIC what its headers include, the rest PRIVATE. tools/check_layers.py holds the #include lines and
# names to the same table.

add_library(tessera_options INTERFACE)
set(warnings -Wall -Wextra -Wshadow -Wno-missing-field-initializers)
if(TESSERA_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Out of a precompiled header gcc 12 shows what it wrongly suspects inside its own std::string.
  list(APPEND warnings -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
endif()
if(TESSERA_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A class over one that is local to a file: gcc asks for it in the file that it compiles.
  list(APPEND warnings -Wno-subobject-linkage)
endif()
if(TESSERA_WERROR)
  list(APPEND warnings -Werror)
endif()
# Layers go into a shared library as well; what it costs is calls that another library might replace.
list(APPEND warnings -fno-semantic-interposition)
target_compile_options(tessera_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")

# Headers that most files of a set include, parsed once: sets are the layers, the tests, the server and
# the command line. A file still names what it uses; without the option it compiles alone.
function(tessera_precompile target set)
  if(NOT TESSERA_PRECOMPILE)
    return()
  endif()
  if(NOT TARGET tessera_precompiled_${set})
    set(source ${CMAKE_BINARY_DIR}/precompiled/${set}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "" @ONLY)
    add_library(tessera_precompiled_${set} OBJECT ${source})
    target_link_libraries(tessera_precompiled_${set} PRIVATE tessera_options ${ARGN})
    if(set STREQUAL "layers")
      set_target_properties(tessera_precompiled_layers PROPERTIES POSITION_INDEPENDENT_CODE ON)
    endif()
    target_precompile_headers(tessera_precompiled_${set} PRIVATE
                              ${CMAKE_SOURCE_DIR}/cmake/precompiled/${set}.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM tessera_precompiled_${set})
endfunction()

add_library(tessera_api INTERFACE)
target_include_directories(tessera_api INTERFACE ${CMAKE_SOURCE_DIR}/include)

function(tessera_layer name)
  cmake_parse_arguments(ARG "" "EXCEPT" "DEPS;PARTS;PUBLIC_PARTS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  if(ARG_EXCEPT)
    list(FILTER sources EXCLUDE REGEX ${ARG_EXCEPT})
  endif()
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.h)
  if(sources)
    set(scope PUBLIC)
    add_library(tessera_${name} STATIC ${sources} ${headers})
    target_link_libraries(tessera_${name} PRIVATE tessera_options)
    set_target_properties(tessera_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    set_property(GLOBAL APPEND PROPERTY TESSERA_LAYERS tessera_${name})
    # Kernels have an optimisation level of their own, which a precompiled header must share.
    # Files of kernels give the same names to what they compile for different instruction sets.
    if(NOT name STREQUAL "kernels")
      tessera_precompile(tessera_${name} layers fmt::fmt Threads::Threads)
      tessera_unity(tessera_${name} ${sources})
    endif()
  elseif(headers)
    set(scope INTERFACE)
    add_library(tessera_${name} INTERFACE)
  else()
    return()
  endif()
  target_include_directories(tessera_${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(tessera_${name} ${scope} tessera_api ${ARG_PUBLIC_PARTS})
  if(sources)
    set(scope PRIVATE)
  endif()
  target_link_libraries(tessera_${name} ${scope} ${ARG_PARTS})
  foreach(dep ${ARG_DEPS})
    if(NOT TARGET tessera_${dep})
      continue()
    endif()
    set(dep_scope ${scope})
    foreach(header ${headers})
      file(STRINGS ${header} uses REGEX "^#include \"${dep}/" LIMIT_COUNT 1)
      if(uses AND sources)
        set(dep_scope PUBLIC)
      endif()
    endforeach()
    target_link_libraries(tessera_${name} ${dep_scope} tessera_${dep})
  endforeach()
endfunction()

tessera_layer(base PUBLIC_PARTS fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)
tessera_layer(tensor DEPS base)
if(TESSERA_HAS_CUDA)
  tessera_layer(kernels DEPS tensor base EXCEPT "/kernels/no_cuda\\.cpp$")
  file(GLOB cuda_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu
                                           ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cuh)
  target_sources(tessera_kernels PRIVATE ${cuda_kernels})
  target_link_libraries(tessera_kernels PRIVATE tessera_cuda_options CUDA::cudart_static ${CMAKE_DL_LIBS})
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cuda/libraries.cpp PROPERTIES
    COMPILE_DEFINITIONS TESSERA_CUDA_LIBRARIES="${CUDAToolkit_LIBRARY_DIR}")
else()
  tessera_layer(kernels DEPS tensor base EXCEPT "/kernels/cuda/")
endif()
tessera_layer(ops DEPS kernels tensor base)
if(MPI_CXX_FOUND)
  tessera_layer(comm DEPS tensor base PARTS MPI::MPI_CXX EXCEPT "/comm/mpi/no_mpi\\.cpp$")
  if(PMIX_INCLUDE AND PMIX_LIBRARY)
    target_compile_definitions(tessera_comm PRIVATE TESSERA_PMIX)
    target_include_directories(tessera_comm SYSTEM PRIVATE ${PMIX_INCLUDE})
    target_link_libraries(tessera_comm PRIVATE ${PMIX_LIBRARY})
  endif()
else()
  tessera_layer(comm DEPS tensor base EXCEPT "/comm/mpi/(launch|progress)\\.cpp$")
endif()
target_link_libraries(tessera_comm PRIVATE ${CMAKE_DL_LIBS})
if(TESSERA_HAS_CUDA)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/comm/nccl/library.cpp PROPERTIES
    COMPILE_DEFINITIONS TESSERA_CUDA_LIBRARIES="${CUDAToolkit_LIBRARY_DIR}")
endif()
tessera_layer(nn DEPS ops tensor base)
tessera_layer(tokenizer DEPS base PARTS ICU::i18n ICU::uc)
tessera_layer(jinja DEPS tokenizer base)
tessera_layer(caption DEPS tokenizer base PARTS ICU::i18n ICU::uc)
tessera_layer(media DEPS tensor base PARTS PNG::PNG ${MEDIA_LIBRARIES} ${CMAKE_DL_LIBS})
tessera_layer(load DEPS nn ops tensor base)
tessera_layer(models DEPS nn ops caption tokenizer tensor base)
tessera_layer(sample DEPS nn ops tensor base)
if(TESSERA_HAS_CUDA)
  tessera_layer(fused DEPS nn ops kernels comm tensor base)
  file(GLOB fused_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/fused/cuda/*.cu
                                            ${CMAKE_SOURCE_DIR}/src/fused/cuda/*.cuh)
  target_sources(tessera_fused PRIVATE ${fused_kernels})
  target_link_libraries(tessera_fused PRIVATE tessera_cuda_options CUDA::cudart_static)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/fused/device_layers.cpp PROPERTIES
    COMPILE_DEFINITIONS TESSERA_FUSED_CUDA)
  if(TESSERA_HAS_NVSHMEM)
    # Its device functions are linked to the kernel's, so both are relocatable.
    foreach(layer kernels fused)
      target_compile_definitions(tessera_${layer} PRIVATE TESSERA_NVSHMEM)
      target_include_directories(tessera_${layer} SYSTEM PRIVATE
        ${NVSHMEM_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_INCLUDE_DIRS}/cccl)
    endforeach()
    target_link_libraries(tessera_kernels PRIVATE ${NVSHMEM_DEVICE} ${NVSHMEM_HOST})
    target_link_libraries(tessera_fused PRIVATE ${NVSHMEM_DEVICE} ${NVSHMEM_HOST})
    set_target_properties(tessera_fused PROPERTIES CUDA_SEPARABLE_COMPILATION ON CUDA_RESOLVE_DEVICE_SYMBOLS ON)
  endif()
else()
  tessera_layer(fused DEPS nn ops kernels comm tensor base EXCEPT "/fused/cuda/")
endif()
tessera_layer(parallel DEPS fused sample nn ops comm tensor base)
tessera_layer(evaluation DEPS sample nn ops tensor base PARTS Eigen3::Eigen)
tessera_layer(cluster DEPS comm tensor base)
tessera_layer(runtime DEPS cluster parallel sample models load media jinja tokenizer nn comm ops kernels tensor
              base)
tessera_layer(diffusion DEPS runtime cluster parallel sample models load media jinja caption tokenizer nn comm ops tensor
              base)
tessera_layer(completion DEPS runtime cluster parallel sample models load tokenizer nn comm ops tensor base)
tessera_layer(admission DEPS completion diffusion runtime cluster parallel sample models load nn comm ops
              kernels tensor base)
tessera_layer(pipeline DEPS admission completion diffusion runtime cluster parallel sample models load
              tokenizer nn comm ops kernels tensor base)
tessera_layer(planner DEPS admission diffusion runtime cluster parallel sample models load nn comm ops kernels
              tensor base)
tessera_layer(engine DEPS pipeline admission completion diffusion runtime cluster parallel sample models load
              media tokenizer nn comm kernels tensor base)
tessera_layer(study DEPS engine pipeline admission completion diffusion runtime cluster evaluation sample
              models load nn ops kernels tensor base)
# Kernels are where time goes; no other layer needs -O3. Sums keep their order: no fast-math anywhere.
target_compile_options(tessera_kernels PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O3>)

# What a program outside the layers sees: the public headers, and what stands behind them to link.
add_library(tessera_public INTERFACE)
target_link_libraries(tessera_public INTERFACE tessera_api $<LINK_ONLY:tessera_engine>
                      $<LINK_ONLY:tessera_study> $<LINK_ONLY:tessera_planner>)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/runtime/resolve_model.cpp PROPERTIES
  COMPILE_DEFINITIONS TESSERA_MODELS_DIR="${TESSERA_MODELS_DIR}")
