#pragma once

namespace tessera::kernels::cuda {

constexpr int kGroup = 128;  // threads of a warpgroup

/// Registers of a thread if three or four warpgroups fill a multiprocessor, and of a computing
/// thread after the fetching warpgroup has given away all but some.
constexpr int launched_registers(int groups) { return 65536 / (groups * kGroup) / 8 * 8; }
constexpr int computing_registers(int computing, int fetching_registers) {
  const int all = launched_registers(computing + 1) * (computing + 1);
  return (all - fetching_registers) / (8 * computing) * 8;
}

}  // namespace tessera::kernels::cuda
