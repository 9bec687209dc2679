#include "media/libav.h"

#include <dlfcn.h>

#include "base/fail.h"

namespace tessera::media {
namespace {

void* opened(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // never unloaded
  require(
      handle != nullptr, ErrorCode::usage,
      "videos need {}, which cannot be loaded: install Debian's "
      "libavformat" AV_STRINGIFY(LIBAVFORMAT_VERSION_MAJOR) " and "
      "libswscale" AV_STRINGIFY(LIBSWSCALE_VERSION_MAJOR) ", or name a folder for the frames",
      library);
  return handle;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  require(function != nullptr, ErrorCode::usage, "this machine's libav has no function {}", name);
}

Libav loaded() {
  void* const util = opened("libavutil.so." AV_STRINGIFY(LIBAVUTIL_VERSION_MAJOR));
  void* const codec = opened("libavcodec.so." AV_STRINGIFY(LIBAVCODEC_VERSION_MAJOR));
  void* const format = opened("libavformat.so." AV_STRINGIFY(LIBAVFORMAT_VERSION_MAJOR));
  void* const scale = opened("libswscale.so." AV_STRINGIFY(LIBSWSCALE_VERSION_MAJOR));
  Libav functions;
#define TESSERA_LIBAV_FIND(library, name) find(library, #name, functions.name);
  TESSERA_LIBAV(TESSERA_LIBAV_FIND)
#undef TESSERA_LIBAV_FIND
  return functions;
}

}  // namespace

const Libav& libav() {
  static const Libav functions = loaded();  // functions only, no state of requests
  return functions;
}

}  // namespace tessera::media
