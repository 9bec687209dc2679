#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/fail.h"
#include "comm/mpi/launch.h"

namespace tessera::comm::mpi {

bool launched() {
  const char* text = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (text == nullptr) return false;
  const std::string_view size = text;
  int ranks = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), ranks);
  require(error == std::errc{} && end == size.data() + size.size() && ranks >= 1 && ranks <= 65536,
          ErrorCode::usage,
          "OMPI_COMM_WORLD_SIZE is '{}': expected 1 to 65536, as the launcher of MPI sets it; "
          "unset it to run "
          "without MPI",
          size.substr(0, 40));
  return true;
}

}  // namespace tessera::comm::mpi
