#include "load/safetensors.h"

#include <algorithm>
#include <utility>

#include "base/foreign_format.h"

namespace tessera::load {
namespace {

FileHeader header_of(const base::InputFile& file) {
  std::string begin(
      static_cast<size_t>(std::min(file.size(), static_cast<int64_t>(base::kForeignBytes))), '\0');
  file.read(0, begin.data(), static_cast<int64_t>(begin.size()));
  const int64_t length = safetensors_data_offset(begin, file.size(), file.path());
  begin.resize(static_cast<size_t>(length));
  file.read(8, begin.data() + 8, length - 8);
  return parse_safetensors_header(begin, file.size(), file.path());
}

FileHeader header_of(std::string_view image, const std::string& name) {
  return parse_safetensors_header(image, static_cast<int64_t>(image.size()), name);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : TensorFile(path, [](const base::InputFile& file) { return header_of(file); }) {}

SafetensorsFile::SafetensorsFile(std::string_view image, std::string name,
                                 std::shared_ptr<const void> owner)
    : TensorFile(image, name, std::move(owner), header_of(image, name)) {}

}  // namespace tessera::load
