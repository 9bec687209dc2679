#include "load/safetensors.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/fail.h"
#include "base/mapped_file.h"
#include "base/printable.h"

namespace tessera::load {
namespace {

using tensor::Shape;
using tensor::Storage;
using tensor::Tensor;

std::string identity_of(const std::string& path) {
  struct stat info {};
  require(::stat(path.c_str(), &info) == 0, ErrorCode::model, "cannot read '{}': {}", path,
          std::strerror(errno));
  return fmt::format("{}:{}:{}:{}.{}", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), identity_(identity_of(path)), mapped_(true) {
  auto file = std::make_shared<const base::MappedFile>(path);
  image_ = {reinterpret_cast<const char*>(file->data()), static_cast<size_t>(file->size())};
  owner_ = std::move(file);
  header_ = std::make_shared<const SafetensorsHeader>(parse_safetensors_header(image_, path_));
}

SafetensorsFile::SafetensorsFile(std::string_view image, std::string name,
                                 std::shared_ptr<const void> owner)
    : path_(std::move(name)),
      identity_(fmt::format("memory:{}", static_cast<const void*>(image.data()))),
      image_(image),
      owner_(std::move(owner)),
      header_(std::make_shared<const SafetensorsHeader>(parse_safetensors_header(image_, path_))) {}

const TensorEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = header_->tensors.find(name);
  require(found != header_->tensors.end(), ErrorCode::model,
          "{}: there is no tensor {} among its {}; is this the right file?", path_,
          base::printable(name), header_->tensors.size());
  return found->second;
}

Tensor SafetensorsFile::get(const std::string& name) const {
  const TensorEntry& e = entry(name);
  const auto dtype = dtype_of(e.dtype);
  require(
      dtype.has_value(), ErrorCode::model,
      "{}: tensor {} has dtype {}; expected F32, F16, BF16, I32, I64, U8 or I8: convert the file",
      path_, base::printable(name), e.dtype);
  require(e.sizes.size() <= static_cast<size_t>(Shape::kMaxRank), ErrorCode::model,
          "{}: tensor {} has {} axes; expected at most {}", path_, base::printable(name),
          e.sizes.size(), Shape::kMaxRank);
  const Shape shape(e.sizes);
  const char* data = image_.data() + header_->data_offset + e.begin;
  const auto width = static_cast<uintptr_t>(size_of(*dtype));
  if (reinterpret_cast<uintptr_t>(data) % width != 0) {
    Tensor copy = Tensor::empty(shape, *dtype, tensor::Device::cpu, tensor::MemoryClass::weights);
    if (e.bytes() > 0) std::memcpy(copy.raw(), data, static_cast<size_t>(e.bytes()));
    return copy;
  }
  return Tensor::over(Storage::view(data, e.bytes(), owner_), 0, shape, *dtype);
}

void SafetensorsFile::release(const std::string& name) const {
  if (!mapped_) return;
  const TensorEntry& e = entry(name);
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(image_.data()) +
                     static_cast<uintptr_t>(header_->data_offset + e.begin);
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = (first + static_cast<uintptr_t>(e.bytes())) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace tessera::load
