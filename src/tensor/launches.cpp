#include "tensor/launches.h"

#include <string_view>

namespace tessera::tensor {
namespace {

constexpr std::string_view kLaunch = "launch of ";

}  // namespace

void count_launch(const char* kernel) {
  if (Meter* const meter = current_scope().meter.get())
    meter->add((std::string(kLaunch) + kernel).c_str(), 0, 0);
}

std::map<std::string, int64_t> launches_of(const std::map<std::string, Meter::Entry>& entries) {
  std::map<std::string, int64_t> launches;
  for (const auto& [op, entry] : entries)
    if (op.starts_with(kLaunch)) launches[op.substr(kLaunch.size())] = entry.calls;
  return launches;
}

}  // namespace tessera::tensor
