#pragma once

#include <climits>
#include <cstddef>
#include <span>
#include <string>

namespace tessera::comm::nccl {

/// What two ranks must both know to make a communicator (ncclUniqueId).
struct UniqueId {
  char bytes[128];
};

/// How a communicator is made (ncclConfig_t as of 2.22); of the rest NCCL takes its own defaults.
struct Config {
  static constexpr int kUnsaid = INT_MIN;
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 22200;
  int blocking = 0;  // calls return while NCCL works on, see kInProgress
  int cluster = 0;   // none: four free multiprocessors of one cluster may not be there for long
  int min_blocks = kUnsaid, max_blocks = kUnsaid;
  const char* net = nullptr;
  int split_share = kUnsaid, traffic_class = kUnsaid;
};

/// What a call returns that NCCL goes on with in the background; async_error() says when it ended.
inline constexpr int kInProgress = 7;

/// The functions of NCCL that the transport calls, declared here so that it builds where NCCL is
/// not. Results (0: success) and element types are ints, communicators and streams pointers.
struct Functions {
  int (*get_unique_id)(UniqueId* id);
  int (*init_rank)(void** comm, int ranks, UniqueId id, int rank, Config* config);
  int (*send)(const void* from, size_t count, int type, int peer, void* comm, void* stream);
  int (*receive)(void* to, size_t count, int type, int peer, void* comm, void* stream);
  int (*group_start)();
  int (*group_end)();
  int (*break_off)(void* comm);  ///< ncclCommAbort: ends what is under way
  int (*async_error)(void* comm, int* result);
  const char* (*error_string)(int result);
  int (*version)(int* version);
};

/// Those of libnccl.so.2, which is opened at the first call, so that a program that never uses
/// several GPUs needs none. Throws Error(usage) where it is missing or too old.
const Functions& library();
/// Those of the first of some files that can be opened.
Functions open_library(std::span<const std::string> paths);

/// Throws Error(usage) for a version that cannot break several links off at once.
void require_version(const Functions& nccl);

/// Throws Error(rank) with NCCL's text unless `result` is success.
void check(const Functions& nccl, int result, const char* call, int peer);

/// What NCCL and CUDA read from the environment when they start, unless the user says otherwise: a
/// GPU must have room for the transfers of all pairs at once, a queue for each of them, and nothing
/// left to load later (docs/adr/0008). Before the first use of a GPU.
void prepare_environment(int ranks);
/// How many blocks the transfers of all pairs are given at most, each a multiprocessor of a GPU.
inline constexpr int kBlocks = 48;
/// Ranks that the transport serves: each has a stream to and from every other one, and a GPU has 32
/// queues.
inline constexpr int kMostRanks = 16;

}  // namespace tessera::comm::nccl
