# The toolchain of scripts/wheel: this machine's compiler, and the C library and libraries of Debian 11 (glibc 2.31)
# in TESSERA_SYSROOT. The C++ library becomes a part of the module.

set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TESSERA_SYSROOT)
set(CMAKE_SYSROOT ${TESSERA_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)  # Python's headers are the interpreter's own
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)  # nanobind stands in a Python environment

set(old ${TESSERA_SYSROOT}/usr/lib/x86_64-linux-gnu)
# Debian 11's fmt is too old, and a newer library needs a newer glibc; its headers are enough.
set(CMAKE_CXX_FLAGS_INIT "-DFMT_HEADER_ONLY -B${old}")
# The compiler looks into its own machine's folders first unless others are named.
set(link "-B${old} -L${old} -L${TESSERA_SYSROOT}/lib/x86_64-linux-gnu -static-libstdc++ -Wl,--as-needed")
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "${link}")
endforeach()
set(TESSERA_CUDA OFF CACHE STRING "" FORCE)
set(CMAKE_DISABLE_FIND_PACKAGE_MPI ON)
