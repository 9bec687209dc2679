#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::runtime {

/// Class numbers for names or numbers. Throws Error(usage) naming an unknown class.
std::vector<int> class_numbers(const std::vector<std::string>& labels,
                               const std::vector<std::string>& names, int64_t count);

}  // namespace tessera::runtime
