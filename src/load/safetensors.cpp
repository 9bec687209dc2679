#include "load/safetensors.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "base/fail.h"
#include "base/foreign_format.h"
#include "base/printable.h"
#include "base/stop.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr int64_t kPiece = int64_t{4} << 20;  // of a large tensor, for one thread

SafetensorsHeader header_of(const base::InputFile& file) {
  std::string begin(
      static_cast<size_t>(std::min(file.size(), static_cast<int64_t>(base::kForeignBytes))), '\0');
  file.read(0, begin.data(), static_cast<int64_t>(begin.size()));
  const int64_t length = safetensors_data_offset(begin, file.size(), file.path());
  begin.resize(static_cast<size_t>(length));
  file.read(8, begin.data() + 8, length - 8);
  return parse_safetensors_header(begin, file.size(), file.path());
}

/// Headers of files that were opened last: a run opens those of a model several times, and one of
/// thousands of experts takes a while to check.
class LastHeaders {
 public:
  std::shared_ptr<const SafetensorsHeader> of(const base::InputFile& file) {
    const std::string identity = file.identity();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [known, header] : last_)
        if (known == identity) return header;
    }
    auto header = std::make_shared<const SafetensorsHeader>(header_of(file));
    const std::lock_guard lock(mutex_);
    last_.emplace_front(identity, header);
    if (last_.size() > kMost) last_.pop_back();
    return header;
  }

 private:
  static constexpr size_t kMost = 64;
  std::mutex mutex_;
  std::deque<std::pair<std::string, std::shared_ptr<const SafetensorsHeader>>> last_;
};

std::shared_ptr<const SafetensorsHeader> known_header(const base::InputFile& file) {
  static LastHeaders* const last = new LastHeaders;  // outlives files in static storage
  return last->of(file);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path),
      file_(std::make_shared<const base::InputFile>(path)),
      header_(known_header(*file_)) {
  identity_ = file_->identity();
}

SafetensorsFile::SafetensorsFile(std::string_view image, std::string name,
                                 std::shared_ptr<const void> owner)
    : path_(std::move(name)),
      identity_(fmt::format("memory:{}", static_cast<const void*>(image.data()))),
      image_(image),
      owner_(std::move(owner)),
      header_(std::make_shared<const SafetensorsHeader>(
          parse_safetensors_header(image_, static_cast<int64_t>(image_.size()), path_))) {}

const TensorEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = header_->tensors.find(name);
  require(found != header_->tensors.end(), ErrorCode::model,
          "{}: there is no tensor {} among its {}; is this the right file?", path_,
          base::printable(name), header_->tensors.size());
  return found->second;
}

SafetensorsFile SafetensorsFile::with(std::map<std::string, TensorEntry> tensors) const {
  SafetensorsFile file = *this;
  file.header_ = std::make_shared<const SafetensorsHeader>(
      SafetensorsHeader{std::move(tensors), header_->metadata, header_->data_offset});
  return file;
}

DType SafetensorsFile::dtype(const std::string& name) const {
  const std::string& spelled = entry(name).dtype;
  const auto dtype = dtype_of(spelled);
  require(
      dtype.has_value(), ErrorCode::model,
      "{}: tensor {} has dtype {}; expected F32, F16, BF16, I32, I64, U8 or I8: convert the file",
      path_, base::printable(name), spelled);
  return *dtype;
}

Tensor SafetensorsFile::get(const std::string& name) const {
  const TensorEntry& e = entry(name);
  const DType dtype = this->dtype(name);
  require(e.sizes.size() <= static_cast<size_t>(Shape::kMaxRank), ErrorCode::model,
          "{}: tensor {} has {} axes; expected at most {}", path_, base::printable(name),
          e.sizes.size(), Shape::kMaxRank);
  const Shape shape(e.sizes);
  // Pages of their own, as weights: most go back to the system as soon as they are packed.
  const tensor::Uncounted aside(tensor::Counts::work);
  Tensor read = Tensor::empty(shape, dtype, tensor::Device::cpu, tensor::MemoryClass::weights);
  this->read(name, static_cast<std::byte*>(read.raw()));
  return read;
}

std::shared_ptr<const std::byte> SafetensorsFile::map(const std::string& name,
                                                      int64_t bytes) const {
  constexpr int64_t kAligned = 64, kBehind = 512;
  const int64_t begin = header_->data_offset + entry(name).begin;
  if (!file_ || begin % kAligned != 0 || bytes > file_->size() - kBehind - begin) return nullptr;
  return {file_, file_->map() + begin};
}

void SafetensorsFile::read(const std::string& name, std::byte* to) const {
  base::check_stop();
  const TensorEntry& e = entry(name);
  const int64_t begin = header_->data_offset + e.begin;
  tensor::parallel_for(e.bytes(), kPiece, [&](int64_t from, int64_t until) {
    if (file_)
      file_->read(begin + from, to + from, until - from);
    else
      std::memcpy(to + from, image_.data() + begin + from, static_cast<size_t>(until - from));
  });
}

}  // namespace tessera::load
