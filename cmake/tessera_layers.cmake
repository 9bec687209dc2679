# One library a layer. A layer links what its line in docs/architecture.md names, and nothing else;
# tools/check_layers.py holds the #include lines to the same table.

add_library(tessera_options INTERFACE)
target_compile_options(tessera_options INTERFACE -Wall -Wextra -Wshadow
                       -Wno-missing-field-initializers)
if(TESSERA_WERROR)
  target_compile_options(tessera_options INTERFACE -Werror)
endif()

add_library(tessera_api INTERFACE)
target_include_directories(tessera_api INTERFACE ${CMAKE_SOURCE_DIR}/include)

function(tessera_layer name)
  cmake_parse_arguments(ARG "" "" "DEPS;PARTS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.h)
  if(sources)
    set(scope PUBLIC)
    add_library(tessera_${name} STATIC ${sources} ${headers})
    target_link_libraries(tessera_${name} PRIVATE tessera_options)
  elseif(headers)
    set(scope INTERFACE)
    add_library(tessera_${name} INTERFACE)
  else()
    return()
  endif()
  target_include_directories(tessera_${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(tessera_${name} ${scope} tessera_api ${ARG_PARTS})
  foreach(dep ${ARG_DEPS})
    if(TARGET tessera_${dep})
      target_link_libraries(tessera_${name} ${scope} tessera_${dep})
    endif()
  endforeach()
endfunction()

tessera_layer(base PARTS fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)
tessera_layer(tensor DEPS base)
tessera_layer(kernels DEPS tensor base PARTS ${DNNL_LIBRARY} ${HWY_LIBRARY})
tessera_layer(ops DEPS kernels tensor base)
tessera_layer(comm DEPS tensor base)
tessera_layer(nn DEPS ops tensor base)
tessera_layer(tokenizer DEPS base)
tessera_layer(media DEPS tensor base PARTS PNG::PNG)
tessera_layer(load DEPS nn tensor base)
tessera_layer(models DEPS nn ops tokenizer tensor base)
tessera_layer(sample DEPS nn ops tensor base)
tessera_layer(fused DEPS nn ops kernels comm tensor base)
tessera_layer(parallel DEPS fused sample nn ops comm tensor base)
tessera_layer(planner DEPS parallel sample nn ops comm tensor base)
tessera_layer(evaluation DEPS sample nn ops tensor base)
tessera_layer(engine DEPS evaluation planner parallel fused sample models load media tokenizer nn
              comm ops kernels tensor base)
# Kernels are where time goes; no other layer needs -O3. Sums keep their order: no fast-math anywhere.
target_compile_options(tessera_kernels PRIVATE $<$<CONFIG:Release>:-O3>)

# What a program outside the layers sees: the public headers, and the engine to link.
add_library(tessera_public INTERFACE)
target_link_libraries(tessera_public INTERFACE tessera_api $<LINK_ONLY:tessera_engine>)
