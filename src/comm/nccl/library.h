#pragma once

#include <climits>
#include <cstddef>
#include <span>
#include <string>

namespace tessera::comm::nccl {

/// The common id of two ranks for a communicator (ncclUniqueId).
struct UniqueId {
  char bytes[128];
};

/// Settings of a communicator (ncclConfig_t as of 2.22); NCCL's defaults for the rest.
struct Config {
  static constexpr int kUnsaid = INT_MIN;
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 22200;
  int blocking = 0;  // calls return while NCCL continues, see kInProgress
  int cluster = 0;   // none: four free multiprocessors of a cluster may be missing for long
  int min_blocks = kUnsaid, max_blocks = kUnsaid;
  const char* net = nullptr;
  int split_share = kUnsaid, traffic_class = kUnsaid;
};

/// The result of a call that continues in the background; async_error() tells its end.
inline constexpr int kInProgress = 7;

/// The functions of NCCL used by the transport, declared here for builds without NCCL. Results (0:
/// success) and element types are ints, communicators and streams pointers.
struct Functions {
  int (*get_unique_id)(UniqueId* id);
  int (*init_rank)(void** comm, int ranks, UniqueId id, int rank, Config* config);
  int (*send)(const void* from, size_t count, int type, int peer, void* comm, void* stream);
  int (*receive)(void* to, size_t count, int type, int peer, void* comm, void* stream);
  int (*group_start)();
  int (*group_end)();
  int (*break_off)(void* comm);  ///< ncclCommAbort: ends transfers under way
  int (*async_error)(void* comm, int* result);
  const char* (*error_string)(int result);
  int (*version)(int* version);
};

/// Functions of libnccl.so.2, opened at the first call, so programs without several GPUs need no
/// NCCL. Throws Error(usage) for a missing or old library.
const Functions& library();
/// Functions of the first loadable file.
Functions open_library(std::span<const std::string> paths);

/// Throws Error(usage) for a version without several aborts at once.
void require_version(const Functions& nccl);

/// Throws Error(rank) with NCCL's text unless `result` is success.
void check(const Functions& nccl, int result, const char* call, int peer);

/// Sets the environment of NCCL and CUDA before their start, unless the user has: a GPU needs room
/// for the transfers of all pairs at once, a queue for each, and no late loads (docs/adr/0008).
/// Before the first use of a GPU.
void prepare_environment(int ranks);
/// Blocks for the transfers of all pairs at most, each a multiprocessor of a GPU.
inline constexpr int kBlocks = 48;
/// Ranks of the transport: each has a stream to and from every peer, and a GPU has 32
/// queues.
inline constexpr int kMostRanks = 16;

}  // namespace tessera::comm::nccl
