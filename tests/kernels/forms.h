#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/bf16_path.h"
#include "kernels/table.h"

namespace tessera::kernels {

/// A kernel with a struct of arguments, and a name for messages.
template <class Args>
struct Form {
  std::string name;
  void (*kernel)(const Args&);
};

/// The kernel of each instruction set; for avx512 those of both units, independent of their speed
/// here.
template <class Args, class Member>
std::vector<Form<Args>> forms_of(Member of_table, std::array<void (*)(const Args&), 2> units) {
  std::vector<Form<Args>> all;
  for (const Isa isa : available_isas()) all.push_back({name_of(isa), cpu_table(isa).*of_table});
  if (detected_isa() >= Isa::avx512) {
    all.push_back({"fma", units[0]});
    if (has_dot_products()) all.push_back({"dot", units[1]});
  }
  return all;
}

}  // namespace tessera::kernels
