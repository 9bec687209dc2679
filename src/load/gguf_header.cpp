#include "load/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"
#include "base/utf8.h"

namespace tessera::load {
namespace {

using base::Json;
using tensor::BlockFormat;

constexpr const char* kRemedy = "the file is damaged: download or export it again";
constexpr std::string_view kOriginalShape = "comfy.gguf.orig_shape.";
constexpr uint64_t kMostKeys = 1 << 16, kMostTensors = 1 << 18, kMostTexts = 1 << 22;
constexpr uint64_t kLongestName = 1024, kLongestKey = 65535, kMostAxes = 4;
constexpr int64_t kLeastAlignment = 8, kMostAlignment = 1 << 16;
constexpr int64_t kMostBytes = int64_t{1} << 60;
constexpr int64_t kMostKept = int64_t{1} << 28;  // bytes of all keys
constexpr uint64_t kMostValues = 1 << 23;

// Type numbers of ggml. Types without a width are not supported.
struct Type {
  uint32_t number;
  const char* name;
  const char* dtype;  // name as a plain element
  int64_t width;      // bytes of a plain element
  std::optional<BlockFormat> format;
};
const auto& types() {
  static const std::array all{
      Type{0, "F32", "F32", 4, {}},
      Type{1, "F16", "F16", 2, {}},
      Type{2, "Q4_0", "F32", 0, BlockFormat::q4_0},
      Type{3, "Q4_1", "F32", 0, BlockFormat::q4_1},
      Type{4, "Q4_2 (removed)", "", 0, {}},
      Type{5, "Q4_3 (removed)", "", 0, {}},
      Type{6, "Q5_0", "F32", 0, BlockFormat::q5_0},
      Type{7, "Q5_1", "F32", 0, BlockFormat::q5_1},
      Type{8, "Q8_0", "F32", 0, BlockFormat::q8_0},
      Type{9, "Q8_1", "", 0, {}},
      Type{10, "Q2_K", "F32", 0, BlockFormat::q2_k},
      Type{11, "Q3_K", "F32", 0, BlockFormat::q3_k},
      Type{12, "Q4_K", "F32", 0, BlockFormat::q4_k},
      Type{13, "Q5_K", "F32", 0, BlockFormat::q5_k},
      Type{14, "Q6_K", "F32", 0, BlockFormat::q6_k},
      Type{15, "Q8_K", "", 0, {}},
      Type{16, "IQ2_XXS", "", 0, {}},
      Type{17, "IQ2_XS", "", 0, {}},
      Type{18, "IQ3_XXS", "", 0, {}},
      Type{19, "IQ1_S", "", 0, {}},
      Type{20, "IQ4_NL", "F32", 0, BlockFormat::iq4_nl},
      Type{21, "IQ3_S", "", 0, {}},
      Type{22, "IQ2_S", "", 0, {}},
      Type{23, "IQ4_XS", "F32", 0, BlockFormat::iq4_xs},
      Type{24, "I8", "", 0, {}},
      Type{25, "I16", "", 0, {}},
      Type{26, "I32", "I32", 4, {}},
      Type{27, "I64", "I64", 8, {}},
      Type{28, "F64", "", 0, {}},
      Type{29, "IQ1_M", "", 0, {}},
      Type{30, "BF16", "BF16", 2, {}},
      Type{31, "Q4_0_4_4 (removed)", "", 0, {}},
      Type{32, "Q4_0_4_8 (removed)", "", 0, {}},
      Type{33, "Q4_0_8_8 (removed)", "", 0, {}},
      Type{34, "TQ1_0", "", 0, {}},
      Type{35, "TQ2_0", "", 0, {}},
      Type{36, "IQ4_NL_4_4 (removed)", "", 0, {}},
      Type{37, "IQ4_NL_4_8 (removed)", "", 0, {}},
      Type{38, "IQ4_NL_8_8 (removed)", "", 0, {}},
      Type{39, "MXFP4", "", 0, {}},
  };
  return all;
}

// Type numbers of GGUF values: their bytes, 0 for texts and lists.
enum : uint32_t { kBool = 7, kText = 8, kList = 9, kValueTypes = 13 };
constexpr std::array<int64_t, kValueTypes> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

int64_t padded(int64_t at, int64_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}

/// Reads the header sequentially.
class Reader {
 public:
  Reader(const ReadAt& read, int64_t file_bytes, const std::string& file)
      : read_(read), bytes_(file_bytes), file_(file) {}

  int64_t at() const { return at_; }

  void take(void* to, int64_t bytes, const char* what) {
    need(static_cast<uint64_t>(bytes), what);
    for (auto* out = static_cast<char*>(to); bytes > 0;) {
      if (at_ < window_begin_ || at_ >= window_begin_ + std::ssize(window_)) fill();
      const int64_t from = at_ - window_begin_, count = std::min(bytes, std::ssize(window_) - from);
      out = std::copy_n(window_.data() + from, count, out);
      at_ += count;
      bytes -= count;
    }
  }
  template <class T>
  T number(const char* what) {
    static_assert(std::endian::native == std::endian::little);
    T value{};
    take(&value, sizeof value, what);
    return value;
  }
  std::string text(uint64_t most, const char* what) {
    const auto length = number<uint64_t>(what);
    require(length <= most, ErrorCode::model, "{}: {} has {} bytes; expected at most {}: {}", file_,
            what, length, most, kRemedy);
    need(length, what);
    std::string read(static_cast<size_t>(length), '\0');
    take(read.data(), static_cast<int64_t>(length), what);
    return read;
  }
  void skip(uint64_t bytes, const char* what) {
    need(bytes, what);
    at_ += static_cast<int64_t>(bytes);
  }
  void skip_text(const char* what) { skip(number<uint64_t>(what), what); }
  // Checks the remaining bytes before a loop over `count` items with a minimum size.
  void need_each(uint64_t count, uint64_t least, const char* what) const {
    require(count <= static_cast<uint64_t>(bytes_ - at_) / least, ErrorCode::model,
            "{}: {} says {}, and {} bytes are left; {}", file_, what, count, bytes_ - at_, kRemedy);
  }

 private:
  void need(uint64_t bytes, const char* what) const {
    require(bytes <= static_cast<uint64_t>(bytes_ - at_), ErrorCode::model,
            "{}: {} has {} bytes, and {} are left; {}", file_, what, bytes, bytes_ - at_, kRemedy);
  }
  void fill() {
    constexpr int64_t kWindow = 1 << 16;
    window_.resize(static_cast<size_t>(std::min(kWindow, bytes_ - at_)));
    window_begin_ = at_;
    read_(at_, window_.data(), std::ssize(window_));
  }

  const ReadAt& read_;
  const int64_t bytes_;
  const std::string& file_;
  int64_t at_ = 0, window_begin_ = 0;
  std::vector<char> window_;
};

class Parser {
 public:
  Parser(const ReadAt& read, int64_t file_bytes, const std::string& file)
      : in_(read, file_bytes, file), file_bytes_(file_bytes), file_(file) {}

  FileHeader parse() {
    const auto [tensors, keys] = counts();
    for (uint64_t i = 0; i < keys; ++i) key();
    for (uint64_t i = 0; i < tensors; ++i) tensor();
    for (const auto& [name, sizes] : shapes_)
      require(header_.tensors.contains(name), ErrorCode::model,
              "{}: the key {}{} is of no tensor of the file; {}", file_, kOriginalShape,
              base::printable(name), kRemedy);
    header_.data_offset = padded(in_.at(), alignment_);
    check_cover();
    return std::move(header_);
  }

  Json metadata() {
    Json values = Json::object();
    for (uint64_t keys = counts().second; keys > 0; --keys) {
      const std::string name = in_.text(kLongestKey, "the name of a key");
      require(base::valid_utf8(name) == name && seen_.insert(name).second, ErrorCode::model,
              "{}: the key {} is there twice, or no text in UTF-8; {}", file_,
              base::printable(name), kRemedy);
      values[name] = kept(name, in_.number<uint32_t>("the type of a value"));
    }
    return values;
  }

 private:
  std::pair<uint64_t, uint64_t> counts() {
    std::array<char, 4> magic{};
    in_.take(magic.data(), 4, "the start of a GGUF file");
    require(std::string_view(magic.data(), 4) == kGgufMagic, ErrorCode::model,
            "{}: the file does not begin with 'GGUF'; {}", file_, kRemedy);
    const auto version = in_.number<uint32_t>("the version");
    require(version != 0x02000000 && version != 0x03000000, ErrorCode::model,
            "{}: this GGUF file is of a big-endian machine, which is not read: download the usual "
            "one",
            file_);
    require(version == 2 || version == 3, ErrorCode::model,
            "{}: this GGUF file is of version {}; expected 2 or 3: convert it again", file_,
            version);
    const auto tensors = in_.number<uint64_t>("the number of tensors");
    const auto keys = in_.number<uint64_t>("the number of keys");
    in_.need_each(keys, 13, "the number of keys");
    in_.need_each(tensors, 33, "the number of tensors");
    require(keys <= kMostKeys && tensors <= kMostTensors, ErrorCode::model,
            "{}: the header names {} tensors and {} keys; expected at most {} and {}: {}", file_,
            tensors, keys, kMostTensors, kMostKeys, kRemedy);
    return {tensors, keys};
  }

  void key() {
    base::check_stop();
    const std::string name = in_.text(kLongestKey, "the name of a key");
    require(seen_.insert(name).second, ErrorCode::model, "{}: the key {} is there twice; {}", file_,
            base::printable(name), kRemedy);
    const auto type = in_.number<uint32_t>("the type of a value");
    if (name == kArchitecture) {
      require(type == kText, ErrorCode::model, "{}: {} is no text; {}", file_, name, kRemedy);
      header_.metadata[name] = in_.text(kLongestName, "general.architecture");
    } else if (name == "general.alignment") {
      require(type == 4, ErrorCode::model, "{}: {} is no u32; {}", file_, name, kRemedy);
      alignment_ = in_.number<uint32_t>("general.alignment");
      require(alignment_ >= kLeastAlignment && alignment_ <= kMostAlignment &&
                  std::has_single_bit(static_cast<uint64_t>(alignment_)),
              ErrorCode::model, "{}: {} is {}; expected a power of two from {} to {}: {}", file_,
              name, alignment_, kLeastAlignment, kMostAlignment, kRemedy);
    } else if (name.starts_with(kOriginalShape)) {
      original_shape(name, type);
    } else {
      value(name, type);
    }
  }

  void value(const std::string& name, uint32_t type) {
    check_type(name, type);
    if (type == kText) return in_.skip_text("a value");
    if (type != kList) return in_.skip(static_cast<uint64_t>(kValueBytes[type]), "a value");
    const auto [item, count] = list(name);
    if (item != kText) return in_.skip(count * static_cast<uint64_t>(kValueBytes[item]), "a list");
    for (uint64_t i = 0; i < count; ++i) {
      base::check_stop();
      in_.skip_text("a text of a list");
    }
  }

  void check_type(const std::string& name, uint32_t type) const {
    require(type < kValueTypes, ErrorCode::model,
            "{}: the key {} has the unknown type {}; expected 0 to {}: {}", file_,
            base::printable(name), type, kValueTypes - 1, kRemedy);
  }

  // Type and number of the values of a list, which fit into the file.
  std::pair<uint32_t, uint64_t> list(const std::string& name) {
    const auto item = in_.number<uint32_t>("the type of a list");
    const auto count = in_.number<uint64_t>("the length of a list");
    require(item < kValueTypes && item != kList, ErrorCode::model,
            "{}: the key {} is a list of values of type {}; expected numbers or texts: {}", file_,
            base::printable(name), item, kRemedy);
    const auto width = static_cast<uint64_t>(kValueBytes[item]);
    in_.need_each(count, item == kText ? 8 : width, "the length of a list");
    require(item != kText || count <= kMostTexts, ErrorCode::model,
            "{}: the key {} is a list of {} texts; expected at most {}: {}", file_,
            base::printable(name), count, kMostTexts, kRemedy);
    return {item, count};
  }

  Json kept(const std::string& name, uint32_t type) {
    check_type(name, type);
    const auto [item, count] = type == kList ? list(name) : std::pair{type, uint64_t{1}};
    values_ += count;
    require(values_ <= kMostValues, ErrorCode::model,
            "{}: the keys up to {} hold {} values; expected at most {}", file_,
            base::printable(name), values_, kMostValues);
    if (type != kList) return kept_one(name, type);
    Json values = Json::array();
    for (uint64_t i = 0; i < count; ++i) values.push_back(kept_one(name, item));
    return values;
  }

  Json kept_one(const std::string& name, uint32_t type) {
    base::check_stop();
    require(in_.at() <= kMostKept, ErrorCode::model,
            "{}: the keys up to {} hold more than {} bytes", file_, base::printable(name),
            kMostKept);
    switch (type) {
      case 0: return in_.number<uint8_t>("a value");
      case 1: return in_.number<int8_t>("a value");
      case 2: return in_.number<uint16_t>("a value");
      case 3: return in_.number<int16_t>("a value");
      case 4: return in_.number<uint32_t>("a value");
      case 5: return in_.number<int32_t>("a value");
      case 6: return decimal(in_.number<float>("a value"));
      case kBool: return in_.number<uint8_t>("a value") != 0;
      case kText: break;
      case 10: return in_.number<uint64_t>("a value");
      case 11: return in_.number<int64_t>("a value");
      default: return decimal(in_.number<double>("a value"));
    }
    std::string text = in_.text(kMostKept, "a text");
    require(base::valid_utf8(text) == text, ErrorCode::model,
            "{}: the key {} holds a text that is no UTF-8; {}", file_, base::printable(name),
            kRemedy);
    return text;
  }

  // The shortest decimal, as it was written before it became a float; null: no finite number.
  template <class T>
  static Json decimal(T value) {
    if (!std::isfinite(value)) return nullptr;
    return std::strtod(fmt::format("{}", value).c_str(), nullptr);
  }

  void original_shape(const std::string& key, uint32_t type) {
    const uint32_t item = type == kList ? in_.number<uint32_t>("the type of a list") : 0;
    require(type == kList && item == 5, ErrorCode::model,
            "{}: the key {} is no list of i32; expected the sizes of a tensor: {}", file_,
            base::printable(key), kRemedy);
    const auto count = in_.number<uint64_t>("the length of a list");
    require(count >= 1 && count <= 8, ErrorCode::model,
            "{}: the key {} has {} sizes; expected 1 to 8: {}", file_, base::printable(key), count,
            kRemedy);
    std::vector<int64_t>& sizes = shapes_[key.substr(kOriginalShape.size())];
    for (uint64_t i = 0; i < count; ++i) {
      sizes.push_back(in_.number<int32_t>("a size"));
      require(sizes.back() > 0, ErrorCode::model, "{}: the key {} has the size {}; {}", file_,
              base::printable(key), sizes.back(), kRemedy);
    }
  }

  void tensor() {
    base::check_stop();
    const std::string name = in_.text(kLongestName, "the name of a tensor");
    require(!name.empty() && base::valid_utf8(name) == name && name.find('\0') == std::string::npos,
            ErrorCode::model, "{}: the tensor {} has a name that is no text in UTF-8; {}", file_,
            base::printable(name), kRemedy);
    TensorEntry entry;
    entry.sizes = sizes(name);
    entry.drops_ones = true;
    const Type& type = type_of(name);
    entry.dtype = type.dtype;
    entry.format = type.format;
    const int64_t bytes = bytes_of(name, entry.sizes, type);
    const auto offset = in_.number<uint64_t>("the offset of a tensor");
    require(offset % static_cast<uint64_t>(alignment_) == 0, ErrorCode::model,
            "{}: tensor {} starts at byte {} of the data; expected a multiple of {}: {}", file_,
            base::printable(name), offset, alignment_, kRemedy);
    require(offset <= static_cast<uint64_t>(file_bytes_) && bytes <= file_bytes_, ErrorCode::model,
            "{}: tensor {} has {} bytes from byte {} of the data on, the file {} in all; {}", file_,
            base::printable(name), bytes, offset, file_bytes_, kRemedy);
    entry.begin = static_cast<int64_t>(offset);
    entry.end = entry.begin + bytes;
    if (const auto shape = shapes_.find(name); shape != shapes_.end()) {
      const int64_t elements = entry.elements();
      int64_t rest = elements;
      for (const int64_t size : shape->second) rest = rest % size == 0 ? rest / size : 0;
      require(rest == 1, ErrorCode::model, "{}: tensor {} has {} elements, and {} says [{}]; {}",
              file_, base::printable(name), elements, kOriginalShape,
              fmt::join(shape->second, ", "), kRemedy);
      entry.sizes = shape->second;
    }
    const bool added = header_.tensors.emplace(name, std::move(entry)).second;
    require(added, ErrorCode::model, "{}: the header names {} twice; {}", file_,
            base::printable(name), kRemedy);
  }

  // Sizes, outermost first; the file stores the fastest axis first.
  std::vector<int64_t> sizes(const std::string& name) {
    const auto axes = in_.number<uint32_t>("the axes of a tensor");
    require(axes >= 1 && axes <= kMostAxes, ErrorCode::model,
            "{}: tensor {} has {} axes; expected 1 to {}: {}", file_, base::printable(name), axes,
            kMostAxes, kRemedy);
    std::vector<int64_t> sizes(axes);
    int64_t elements = 1;
    for (uint32_t i = 0; i < axes; ++i) {
      const auto size = in_.number<uint64_t>("a size");
      require(size >= 1 && size <= static_cast<uint64_t>(kMostBytes / 8 / elements),
              ErrorCode::model,
              "{}: tensor {} has the size {} on an axis, which is none or overflows; {}", file_,
              base::printable(name), size, kRemedy);
      elements *= static_cast<int64_t>(size);
      sizes[axes - 1 - i] = static_cast<int64_t>(size);
    }
    return sizes;
  }

  const Type& type_of(const std::string& name) {
    const auto number = in_.number<uint32_t>("the type of a tensor");
    const auto found = std::ranges::find(types(), number, &Type::number);
    require(found != types().end(), ErrorCode::model, "{}: tensor {} is of the unknown type {}; {}",
            file_, base::printable(name), number, kRemedy);
    require(found->width > 0 || found->format, ErrorCode::model,
            "{}: tensor {} is of type {}, which is not read; expected F32, F16, BF16, Q4_0, Q4_1, "
            "Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL or IQ4_XS: download the file in one of these",
            file_, base::printable(name), found->name);
    return *found;
  }

  int64_t bytes_of(const std::string& name, const std::vector<int64_t>& sizes, const Type& type) {
    int64_t elements = 1;
    for (const int64_t size : sizes) elements *= size;
    if (!type.format) return elements * type.width;
    const tensor::BlockSize block = tensor::block_size(*type.format);
    require(sizes.back() % block.elements == 0, ErrorCode::model,
            "{}: tensor {} has rows of {} elements; expected whole blocks of {} for {}: {}", file_,
            base::printable(name), sizes.back(), block.elements, type.name, kRemedy);
    return elements / block.elements * block.bytes;
  }

  void check_cover() const {
    std::vector<std::pair<const std::string*, const TensorEntry*>> order;
    for (const auto& [name, entry] : header_.tensors) order.emplace_back(&name, &entry);
    std::ranges::sort(order, {}, [](const auto& one) { return one.second->begin; });
    int64_t at = 0, end = 0;
    for (const auto& [name, entry] : order) {
      require(entry->begin == at, ErrorCode::model,
              "{}: tensor {} starts at byte {} of the data; expected {}, behind the one before it "
              "({}): {}",
              file_, base::printable(*name), entry->begin, at,
              entry->begin < at ? "overlap" : "hole", kRemedy);
      end = entry->end;
      at = padded(end, alignment_);
    }
    const int64_t data = file_bytes_ - header_.data_offset;
    require(end <= data && data <= at, ErrorCode::model,
            "{}: the tensors end at byte {} of {} bytes of data; expected no more and no rest: {}",
            file_, end, std::max<int64_t>(data, 0), kRemedy);
  }

  Reader in_;
  const int64_t file_bytes_;
  const std::string& file_;
  int64_t alignment_ = 32;
  uint64_t values_ = 0;  // that are kept
  FileHeader header_;
  std::set<std::string> seen_;
  std::map<std::string, std::vector<int64_t>> shapes_;  // shapes before a reshape
};

}  // namespace

FileHeader parse_gguf_header(const ReadAt& read, int64_t file_bytes, const std::string& file) {
  return Parser(read, file_bytes, file).parse();
}

base::Json parse_gguf_metadata(const ReadAt& read, int64_t file_bytes, const std::string& file) {
  return Parser(read, file_bytes, file).metadata();
}

}  // namespace tessera::load
