// libFuzzer target: any text is the configuration of a scheduler with finite timesteps and steps,
// or fails with an Error of a single line. The first byte chooses the number of steps.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "sample/scheduler.h"
#include "tessera/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  const int steps = 1 + data[0] % 32;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const base::Json config = base::parse_json(text, "fuzz");
    if (!config.is_object()) return 0;
    const auto name = config.find("_class_name");
    if (name == config.end() || !name->is_string()) return 0;
    const auto sampler = sample::make_sampler(name->get<std::string>(), config, "fuzz",
                                              {.steps = steps, .tokens = 64});
    if (sampler->steps() < 1 || sampler->steps() > 4 * steps) std::abort();
    for (int i = 0; i < sampler->steps(); ++i)
      if (!std::isfinite(sampler->timestep(i))) std::abort();
  } catch (const Error& error) {
    const std::string message = error.what();
    if (error.code() != ErrorCode::model && error.code() != ErrorCode::usage) std::abort();
    if (message.find('\n') != std::string::npos || message.size() > 2000) std::abort();
  }
  return 0;
}
