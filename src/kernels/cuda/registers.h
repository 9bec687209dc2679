#pragma once

namespace tessera::kernels::cuda {

constexpr int kGroup = 128;  // threads of a warpgroup

/// Registers of a thread among three or four warpgroups that fill a multiprocessor, and of one that
/// computes once the one that fetches has given away all but so many.
constexpr int launched_registers(int groups) { return 65536 / (groups * kGroup) / 8 * 8; }
constexpr int computing_registers(int computing, int fetching_registers) {
  const int all = launched_registers(computing + 1) * (computing + 1);
  return (all - fetching_registers) / (8 * computing) * 8;
}

}  // namespace tessera::kernels::cuda
