#pragma once

#include <nlohmann/json.hpp>

#include "tessera/report.h"

namespace tessera {

/// Parts of reports for images and texts.
nlohmann::ordered_json json_of(const MemoryPeaks& peaks);
nlohmann::ordered_json json_of(const StreamedExperts& experts);
nlohmann::ordered_json json_of(const Report::Rank& rank);

}  // namespace tessera
