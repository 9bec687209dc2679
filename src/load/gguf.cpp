#include "load/gguf.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "load/gguf_header.h"
#include "load/safetensors.h"

namespace tessera::load {
namespace {

FileHeader header_of(const base::InputFile& file) {
  const ReadAt read = [&](int64_t at, void* to, int64_t bytes) { file.read(at, to, bytes); };
  return parse_gguf_header(read, file.size(), file.path());
}

FileHeader header_of(std::string_view image, const std::string& name) {
  const ReadAt read = [image](int64_t at, void* to, int64_t bytes) {
    std::memcpy(to, image.data() + at, static_cast<size_t>(bytes));
  };
  return parse_gguf_header(read, static_cast<int64_t>(image.size()), name);
}

}  // namespace

GgufFile::GgufFile(const std::string& path)
    : TensorFile(path, [](const base::InputFile& file) { return header_of(file); }) {}

GgufFile::GgufFile(std::string_view image, std::string name, std::shared_ptr<const void> owner)
    : TensorFile(image, name, std::move(owner), header_of(image, name)) {}

bool is_gguf(const std::string& path) {
  const base::InputFile file(path);
  std::string begin(kGgufMagic.size(), '\0');
  const int64_t bytes = std::min(file.size(), std::ssize(begin));
  file.read(0, begin.data(), bytes);
  return begin == kGgufMagic || (bytes == 0 && path.ends_with(".gguf"));
}

TensorFile open_tensor_file(const std::string& path) {
  if (is_gguf(path)) return GgufFile(path);
  return SafetensorsFile(path);
}

}  // namespace tessera::load
