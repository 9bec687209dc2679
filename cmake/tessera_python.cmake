# Finds what the Python module needs: Python's headers, and nanobind. Sets TESSERA_HAS_PYTHON, and
# TESSERA_NO_PYTHON to the reason where there is none.

set(TESSERA_PYTHON AUTO CACHE STRING "The Python module: AUTO (where Python's headers and nanobind are), ON, OFF")
set_property(CACHE TESSERA_PYTHON PROPERTY STRINGS AUTO ON OFF)
if(NOT TESSERA_PYTHON MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TESSERA_PYTHON is '${TESSERA_PYTHON}'; choose AUTO, ON or OFF")
endif()

set(TESSERA_HAS_PYTHON OFF)
set(TESSERA_NO_PYTHON "the build has TESSERA_PYTHON=OFF")
if(NOT TESSERA_PYTHON STREQUAL "OFF")
  # What scripts/install makes; another one is named by -DPython_EXECUTABLE=.
  if(NOT DEFINED Python_EXECUTABLE AND EXISTS ${CMAKE_SOURCE_DIR}/build/python/bin/python)
    set(Python_EXECUTABLE ${CMAKE_SOURCE_DIR}/build/python/bin/python)
  endif()
  find_package(Python 3.9 QUIET COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
  set(TESSERA_NO_PYTHON "no Python 3.9 with its headers was found (Debian's python3-dev)")
  if(Python_Development.Module_FOUND)
    execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    find_package(nanobind CONFIG QUIET)
    set(TESSERA_NO_PYTHON "${Python_EXECUTABLE} has no nanobind; run ./scripts/install python")
    set(TESSERA_HAS_PYTHON ${nanobind_FOUND})
  endif()
  if(TESSERA_PYTHON STREQUAL "ON" AND NOT TESSERA_HAS_PYTHON)
    message(FATAL_ERROR "TESSERA_PYTHON is ON, but ${TESSERA_NO_PYTHON}")
  endif()
endif()
message(STATUS "Python module: ${TESSERA_HAS_PYTHON}")
