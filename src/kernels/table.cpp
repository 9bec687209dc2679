#include "kernels/table.h"

#include <array>

#include "kernels/experts.h"
#include "kernels/matmul.h"

namespace tessera::kernels {
namespace {

KernelTable table_for(Isa isa) {
  KernelTable table;
  table.matmul = reference::matmul;
  table.experts = reference::experts;
  table.combine = reference::combine;
#if defined(__x86_64__)
  if (isa >= Isa::avx512) {
    table.matmul = avx512::matmul;
    table.experts = avx512::experts;
    table.combine = avx512::combine;
  }
#endif
  return table;
}

}  // namespace

const KernelTable& cpu_table(Isa isa) {
  static const std::array<KernelTable, 4> tables = {table_for(Isa::reference), table_for(Isa::avx2),
                                                    table_for(Isa::avx512), table_for(Isa::amx)};
  return tables[static_cast<size_t>(isa)];
}

const KernelTable& cpu_table() { return cpu_table(active_isa()); }

}  // namespace tessera::kernels
