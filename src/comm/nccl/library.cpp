#include "comm/nccl/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/fail.h"

namespace tessera::comm::nccl {
namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr int kOldest = 22200;  // the first version with several aborts at once

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  require(function != nullptr, ErrorCode::usage, "{} has no {}; install NCCL 2.22 or newer", kName,
          name);
}

}  // namespace

Functions open_library(std::span<const std::string> paths) {
  void* library = nullptr;
  for (const std::string& path : paths)
    if (!library) library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* reason = library ? nullptr : dlerror();
  require(library != nullptr, ErrorCode::usage,
          "several ranks with `device` cuda need NCCL, and {} cannot be opened ({}); install it "
          "(Debian: libnccl2), or use `device` cpu",
          kName, reason ? reason : "unknown error");
  Functions f{};
  find(library, "ncclGetUniqueId", f.get_unique_id);
  find(library, "ncclCommInitRankConfig", f.init_rank);
  find(library, "ncclSend", f.send);
  find(library, "ncclRecv", f.receive);
  find(library, "ncclGroupStart", f.group_start);
  find(library, "ncclGroupEnd", f.group_end);
  find(library, "ncclCommAbort", f.break_off);
  find(library, "ncclCommGetAsyncError", f.async_error);
  find(library, "ncclGetErrorString", f.error_string);
  find(library, "ncclGetVersion", f.version);
  require_version(f);
  return f;
}

void require_version(const Functions& nccl) {
  int version = 0;
  const int result = nccl.version(&version);
  require(
      result == 0 && version >= kOldest, ErrorCode::usage,
      "{} is NCCL {}.{}: several ranks with `device` cuda need 2.22 or newer, or use `device` cpu",
      kName, version / 10000, version / 100 % 100);
}

const Functions& library() {
  static const Functions functions = [] {
    std::vector<std::string> paths = {kName};
#ifdef TESSERA_CUDA_LIBRARIES
    paths.push_back(std::string(TESSERA_CUDA_LIBRARIES "/") + kName);
#endif
    return open_library(paths);
  }();
  return functions;
}

void check(const Functions& nccl, int result, const char* call, int peer) {
  require(result == 0, ErrorCode::rank,
          "{} with rank {} failed: {}; NCCL_DEBUG=WARN in the environment says more", call, peer,
          nccl.error_string(result));
}

void prepare_environment(int ranks) {
  const int links = 2 * std::max(ranks - 1, 1);
  // NCCL would round up to a power of two.
  const auto share = static_cast<unsigned>(std::clamp(kBlocks / links, 1, 16));
  const std::string blocks = std::to_string(std::bit_floor(share));
  ::setenv("NCCL_MAX_CTAS", blocks.c_str(), 0);
  ::setenv("NCCL_MAX_P2P_NCHANNELS", blocks.c_str(), 0);
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 0);  // links do not wait for each other
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);  // a late load may wait for transfers under way
}

}  // namespace tessera::comm::nccl
