#include "load/tensor_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"
#include "load/safetensors_header.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr int64_t kPiece = int64_t{4} << 20;     // bytes of a large tensor for each thread
constexpr int64_t kExpanded = int64_t{1} << 16;  // elements expanded by a thread at a time

/// Cache of recently read headers: a run opens the files of a model several times, and checking a
/// header with thousands of experts takes a while.
class LastHeaders {
 public:
  template <class Parse>
  std::shared_ptr<const FileHeader> of(const base::InputFile& file, const Parse& parse) {
    const std::string identity = file.identity();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [key, header] : last_)
        if (key == identity) return header;
    }
    auto header = std::make_shared<const FileHeader>(parse(file));
    const std::lock_guard lock(mutex_);
    last_.emplace_front(identity, header);
    if (last_.size() > kMost) last_.pop_back();
    return header;
  }

 private:
  static constexpr size_t kMost = 64;
  std::mutex mutex_;
  std::deque<std::pair<std::string, std::shared_ptr<const FileHeader>>> last_;
};

LastHeaders& last_headers() {
  static LastHeaders* const last = new LastHeaders;  // outlives files in static storage
  return *last;
}

// Runs of bytes in the file, in the order of the tensor's rows.
struct Run {
  int64_t begin, end;
};
std::array<Run, 2> runs_of(const TensorEntry& e) {
  const int64_t middle = e.halves_swapped ? e.begin + e.stored_bytes() / 2 : e.begin;
  return {Run{middle, e.end}, Run{e.begin, middle}};
}

// Multiplies elements [first, first + values) of a tensor by their scales.
void scale(const TensorEntry& e, int64_t first, std::vector<float>& values) {
  const std::vector<float>& scales = *e.scales;
  const int64_t row = e.row_elements();
  for (size_t i = 0; i < values.size(); ++i)
    values[i] *= scales.size() == 1
                     ? scales[0]
                     : scales[static_cast<size_t>((first + static_cast<int64_t>(i)) / row)];
}

void put(const std::vector<float>& values, DType dtype, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, values.data(), values.size() * sizeof(float));
    return;
  }
  auto* const out = reinterpret_cast<tensor::BFloat16*>(to);
  std::ranges::transform(values, out, tensor::to_bfloat16);
}

}  // namespace

TensorFile::TensorFile(const std::string& path, const Parse& parse)
    : path_(path),
      file_(std::make_shared<const base::InputFile>(path)),
      header_(last_headers().of(*file_, parse)) {
  identity_ = file_->identity();
}

TensorFile::TensorFile(std::string_view image, std::string name, std::shared_ptr<const void> owner,
                       FileHeader header)
    : path_(std::move(name)),
      identity_(fmt::format("memory:{}", static_cast<const void*>(image.data()))),
      image_(image),
      owner_(std::move(owner)),
      header_(std::make_shared<const FileHeader>(std::move(header))) {}

const TensorEntry& TensorFile::entry(const std::string& name) const {
  const auto it = header_->tensors.find(name);
  require(it != header_->tensors.end(), ErrorCode::model,
          "{}: there is no tensor {} among its {}; is this the right file?", path_,
          base::printable(name), header_->tensors.size());
  return it->second;
}

TensorFile TensorFile::with(std::map<std::string, TensorEntry> tensors) const {
  TensorFile file = *this;
  file.header_ = std::make_shared<const FileHeader>(
      FileHeader{std::move(tensors), header_->metadata, header_->data_offset});
  return file;
}

DType TensorFile::dtype(const std::string& name) const {
  const std::string& type = entry(name).dtype;
  const auto dtype = dtype_of(type);
  require(
      dtype.has_value(), ErrorCode::model,
      "{}: tensor {} has dtype {}; expected F32, F16, BF16, I32, I64, U8 or I8: convert the file",
      path_, base::printable(name), type);
  return *dtype;
}

Tensor TensorFile::get(const std::string& name) const {
  const TensorEntry& e = entry(name);
  const DType dtype = this->dtype(name);
  require(e.sizes.size() <= static_cast<size_t>(Shape::kMaxRank), ErrorCode::model,
          "{}: tensor {} has {} axes; expected at most {}", path_, base::printable(name),
          e.sizes.size(), Shape::kMaxRank);
  const Shape shape(e.sizes);
  // Uses separate pages, as for weights: most return to the system after packing.
  const tensor::Uncounted aside(tensor::Counts::work);
  Tensor result = Tensor::empty(shape, dtype, tensor::Device::cpu, tensor::MemoryClass::weights);
  this->read(name, static_cast<std::byte*>(result.raw()));
  return result;
}

std::shared_ptr<const std::byte> TensorFile::map(const std::string& name, int64_t bytes) const {
  constexpr int64_t kAligned = 64, kBehind = 512;
  const TensorEntry& e = entry(name);
  if (e.format || e.halves_swapped) return nullptr;
  const int64_t begin = header_->data_offset + e.begin;
  if (!file_ || begin % kAligned != 0 || bytes > file_->size() - kBehind - begin) return nullptr;
  return {file_, file_->map() + begin};
}

void TensorFile::read_bytes(int64_t at, std::byte* to, int64_t bytes) const {
  const int64_t begin = header_->data_offset + at;
  if (file_)
    file_->read(begin, to, bytes);
  else
    std::memcpy(to, image_.data() + begin, static_cast<size_t>(bytes));
}

void TensorFile::read_stored(const std::string& name, std::byte* to) const {
  base::check_stop();
  for (const Run& run : runs_of(entry(name))) {
    tensor::parallel_for(run.end - run.begin, kPiece, [&](int64_t from, int64_t until) {
      read_bytes(run.begin + from, to + from, until - from);
    });
    to += run.end - run.begin;
  }
}

void TensorFile::read(const std::string& name, std::byte* to) const {
  const TensorEntry& e = entry(name);
  if (!e.format) return read_stored(name, to);
  base::check_stop();
  expand(name, e, to);
}

void TensorFile::expand(const std::string& name, const TensorEntry& e, std::byte* to) const {
  const tensor::BlockSize size = tensor::block_size(*e.format);
  const DType dtype = this->dtype(name);
  const int64_t most = std::max<int64_t>(kExpanded / size.elements, 1);
  int64_t before = 0;  // blocks of the previous runs
  for (const Run& run : runs_of(e)) {
    const int64_t blocks = (run.end - run.begin) / size.bytes;
    tensor::parallel_for(blocks, most, [&](int64_t from, int64_t until) {
      std::vector<std::byte> data(static_cast<size_t>(std::min(most, until - from) * size.bytes));
      std::vector<float> values;
      for (int64_t at = from; at < until; at += most) {
        const int64_t count = std::min(most, until - at), first = (before + at) * size.elements;
        read_bytes(run.begin + at * size.bytes, data.data(), count * size.bytes);
        values.resize(static_cast<size_t>(count * size.elements));
        const bool finite = tensor::expand_blocks(*e.format, data.data(), count, values.data());
        require(finite, ErrorCode::model,
                "{}: tensor {} ({}) holds a scale or an element that is infinite or no number; the "
                "file is damaged: download or export it again",
                path_, base::printable(name), tensor::name_of(*e.format));
        if (e.scales) scale(e, first, values);
        put(values, dtype, to + first * tensor::size_of(dtype));
      }
    });
    before += blocks;
  }
}

}  // namespace tessera::load
