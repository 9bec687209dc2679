#include "runtime/former_output.h"

#include <algorithm>

#include "base/input_file.h"
#include "load/safetensors.h"
#include "media/origin.h"
#include "tessera/error.h"

namespace tessera::runtime {
namespace {

constexpr int64_t kLargestReport = int64_t{256} << 20;

const char* word_of_tensors(FileKind kind) {
  switch (kind) {
    case FileKind::latents: return "latents";
    case FileKind::trace: return "trace";
    default: return "tensors";
  }
}

// JSON strings contain no line breaks, so a line with this key is a key of the outermost object.
bool is_report(const std::string& text) {
  return text.starts_with('{') && (text.find("\n \"program\": \"Tessera\"") != text.npos ||
                                   text.find("\n  \"program\": \"Tessera\"") != text.npos);
}

bool is_plan_costs(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.starts_with('{') && line.find("\"rank_bytes\":") != line.npos &&
         line.find("\"step_seconds\":") != line.npos;
}

}  // namespace

bool is_former_output(const std::string& path, FileKind kind) {
  try {
    switch (kind) {
      case FileKind::image: return media::is_own_image(base::InputFile(path));
      case FileKind::video: return media::is_own_video(base::InputFile(path));
      case FileKind::report: return is_report(base::read_file(path, kLargestReport));
      case FileKind::plan_costs: return is_plan_costs(base::read_file(path, kLargestReport));
      case FileKind::latents:
      case FileKind::trace:
      case FileKind::tensors:
        return std::ranges::includes(load::SafetensorsFile(path).metadata(),
                                     tensors_metadata(kind));
      case FileKind::chat:
      case FileKind::model:
      case FileKind::store: return false;
    }
  } catch (const Error& e) {
    if (e.code() == ErrorCode::cancelled) throw;
  }
  return false;
}

std::map<std::string, std::string> tensors_metadata(FileKind kind) {
  return {{"tessera", word_of_tensors(kind)}};
}

}  // namespace tessera::runtime
