#include "load/safetensors_header.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/fail.h"
#include "base/foreign_format.h"
#include "base/printable.h"
#include "base/stop.h"

namespace tessera::load {
namespace {

using Json = nlohmann::json;
using tensor::DType;

constexpr const char* kRemedy = "the file is damaged: download or export it again";
constexpr size_t kMostAxes = 32;
constexpr size_t kMostTensors = size_t{1} << 18, kMostNotes = size_t{1} << 16;  // a kilobyte each

struct Width {
  const char* name;
  int64_t bits;
};
// All dtypes of the format, including unsupported dtypes.
constexpr Width kWidths[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},    {"U8", 8},   {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},     {"I16", 16},       {"U16", 16}, {"F16", 16},
    {"BF16", 16},   {"I32", 32},    {"U32", 32},        {"F32", 32},       {"C64", 64}, {"F64", 64},
    {"I64", 64},    {"U64", 64},    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};

int64_t bits_of(const std::string& dtype) {
  for (const Width& width : kWidths)
    if (dtype == width.name) return width.bits;
  return 0;
}

// Parses the JSON header token by token: no tree is built, and unexpected tokens fail at once.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}
  FileHeader take() { return std::move(header_); }

  bool null() override {
    if (depth_ != 1 || name_ != "__metadata__") unexpected("null");
    return true;  // same as missing: optional in the reference reader
  }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { unexpected(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) override {
    unexpected(base::printable(text));
  }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 2 || !in_array_ || value > static_cast<uint64_t>(INT64_MAX))
      unexpected(fmt::format("{}", value));
    if (field_ == "shape") {
      require(entry_.sizes.size() < kMostAxes, ErrorCode::model,
              "{}: tensor {} has more than {} axes; {}", file_, base::printable(name_), kMostAxes,
              kRemedy);
      entry_.sizes.push_back(static_cast<int64_t>(value));
    } else {
      if (offsets_ == 2) unexpected("a third data offset");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = static_cast<int64_t>(value);
    }
    return true;
  }

  bool string(string_t& text) override {
    if (depth_ == 2 && in_metadata_) {
      require(header_.metadata.size() < kMostNotes, ErrorCode::model,
              "{}: __metadata__ has more than {} entries; {}", file_, kMostNotes, kRemedy);
      const bool added = header_.metadata.emplace(field_, text).second;
      require(added, ErrorCode::model, "{}: __metadata__ holds {} twice; {}", file_,
              base::printable(field_), kRemedy);
    } else if (depth_ == 2 && !in_array_ && field_ == "dtype") {
      require(bits_of(text) != 0, ErrorCode::model,
              "{}: tensor {} has the unknown dtype {}; expected one of the safetensors format "
              "(F32, F16, BF16, ...): {}",
              file_, base::printable(name_), base::printable(text), kRemedy);
      entry_.dtype = text;
    } else {
      unexpected(base::printable(text));
    }
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ == 2 || in_array_) unexpected("an object");
    if (depth_++ == 1) {
      in_metadata_ = name_ == "__metadata__";
      entry_ = {};
      seen_fields_ = 0;
      offsets_ = 0;
    }
    return true;
  }

  bool key(string_t& text) override {
    base::check_stop();
    if (depth_ == 1) {
      require(header_.tensors.size() < kMostTensors, ErrorCode::model,
              "{}: the header names more than {} tensors; {}", file_, kMostTensors, kRemedy);
      name_ = text;
      const bool again = text == "__metadata__" ? std::exchange(metadata_seen_, true)
                                                : header_.tensors.contains(text);
      require(!again, ErrorCode::model, "{}: the header names {} twice; {}", file_,
              base::printable(text), kRemedy);
    } else if (!in_metadata_) {
      const unsigned bit = text == "dtype"          ? 1u
                           : text == "shape"        ? 2u
                           : text == "data_offsets" ? 4u
                                                    : 0u;
      require(
          bit != 0 && (seen_fields_ & bit) == 0, ErrorCode::model,
          "{}: tensor {} has the {} field {}; expected dtype, shape and data_offsets once each: {}",
          file_, base::printable(name_), bit == 0 ? "unknown" : "repeated", base::printable(text),
          kRemedy);
      seen_fields_ |= bit;
    }
    field_ = text;
    return true;
  }

  bool end_object() override {
    if (--depth_ == 1 && !in_metadata_) {
      require(seen_fields_ == 7u && offsets_ == 2, ErrorCode::model,
              "{}: tensor {} lacks a dtype, a shape or two data_offsets; {}", file_,
              base::printable(name_), kRemedy);
      header_.tensors.emplace(name_, std::move(entry_));
    }
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_array_ || in_metadata_ || field_ == "dtype") unexpected("an array");
    in_array_ = true;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    fail(ErrorCode::model, "{}: the header is not valid JSON at byte {}; {}", file_, position + 7,
         kRemedy);
  }

 private:
  [[noreturn]] void unexpected(const std::string& problem) const {
    const std::string where =
        depth_ == 0   ? "at its start"
        : depth_ == 1 ? "as entry " + base::printable(name_)
                      : "in " + base::printable(name_) + " as " + base::printable(field_);
    fail(ErrorCode::model,
         "{}: the header holds {} {}; expected an object of tensors, each with dtype (a string), "
         "shape "
         "and data_offsets (whole numbers from 0), and strings in __metadata__: {}",
         file_, problem, where, kRemedy);
  }

  const std::string& file_;
  FileHeader header_;
  TensorEntry entry_;
  std::string name_, field_;
  int depth_ = 0, offsets_ = 0;
  unsigned seen_fields_ = 0;
  bool in_array_ = false, in_metadata_ = false, metadata_seen_ = false;
};

// Refuses bytes that are no header, naming the actual format if recognised.
[[noreturn]] void refuse_start(std::string_view begin, const std::string& file,
                               const std::string& problem) {
  base::refuse_foreign(begin, file);
  const std::string_view start = begin.substr(0, 60);
  const bool text = std::ranges::all_of(
      start, [](unsigned char c) { return std::isprint(c) != 0 || std::isspace(c) != 0; });
  require(!text || start.empty(), ErrorCode::model,
          "{}: this is text that begins with {}, such as a server's answer in place of the file: "
          "download it again",
          file, base::printable(start));
  fail(ErrorCode::model, "{}: {}: this is no safetensors file, or {}", file, problem, kRemedy);
}

// Bytes of a dense tensor; throws above 62 bits.
int64_t expected_bytes(const std::string& file, const std::string& name, const TensorEntry& entry) {
  constexpr int64_t kMost = int64_t{1} << 62;
  const int64_t bits = bits_of(entry.dtype);
  int64_t total = bits;
  bool empty = false;
  for (const int64_t size : entry.sizes) empty = empty || size == 0;
  if (empty) return 0;
  for (const int64_t size : entry.sizes) {
    require(total <= kMost / size, ErrorCode::model,
            "{}: tensor {} of dtype {} has the shape [{}], which overflows; {}", file,
            base::printable(name), entry.dtype, fmt::join(entry.sizes, ", "), kRemedy);
    total *= size;
  }
  require(total % 8 == 0, ErrorCode::model, "{}: tensor {} does not fill whole bytes; {}", file,
          base::printable(name), kRemedy);
  return total / 8;
}

void check_entry(const std::string& file, const std::string& name, const TensorEntry& entry,
                 int64_t data_bytes) {
  require(
      entry.begin <= entry.end && entry.end <= data_bytes, ErrorCode::model,
      "{}: tensor {} has the data_offsets [{}, {}]; expected begin <= end <= {}, the bytes of data "
      "in the file: {}",
      file, base::printable(name), entry.begin, entry.end, data_bytes, kRemedy);
  const int64_t expected = expected_bytes(file, name, entry);
  require(entry.bytes() == expected, ErrorCode::model,
          "{}: tensor {} has {} bytes of data; expected {} for {} [{}]: {}", file,
          base::printable(name), entry.bytes(), expected, entry.dtype, fmt::join(entry.sizes, ", "),
          kRemedy);
}

void check_cover(const std::string& file, const FileHeader& header, int64_t data_bytes) {
  std::vector<std::pair<const std::string*, const TensorEntry*>> order;
  order.reserve(header.tensors.size());
  for (const auto& [name, entry] : header.tensors) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  int64_t at = 0;
  for (const auto& [name, entry] : order) {
    require(
        entry->begin == at, ErrorCode::model,
        "{}: tensor {} starts at byte {} of the data; expected {}, where the one before it ends "
        "({}): {}",
        file, base::printable(*name), entry->begin, at, entry->begin < at ? "overlap" : "hole",
        kRemedy);
    at = entry->end;
  }
  require(at == data_bytes, ErrorCode::model,
          "{}: the tensors end at byte {} of {} bytes of data; expected no rest: {}", file, at,
          data_bytes, kRemedy);
}

}  // namespace

int64_t safetensors_data_offset(std::string_view begin, int64_t file_bytes,
                                const std::string& file) {
  require(begin.size() >= 8 && file_bytes >= 8, ErrorCode::model,
          "{}: {} bytes are too few for a safetensors file (at least 8); {}", file, file_bytes,
          kRemedy);
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i)
    length |= uint64_t{static_cast<unsigned char>(begin[i])} << (8 * i);
  if (length > static_cast<uint64_t>(kLongestHeader))
    refuse_start(
        begin, file,
        fmt::format("the header claims {} bytes; expected at most {}", length, kLongestHeader));
  if (length > static_cast<uint64_t>(file_bytes - 8) && !begin.substr(8).starts_with('{'))
    base::refuse_foreign(begin, file);
  require(length <= static_cast<uint64_t>(file_bytes - 8), ErrorCode::model,
          "{}: the header claims {} bytes, the file has {} after its length; {}", file, length,
          file_bytes - 8, kRemedy);
  return 8 + static_cast<int64_t>(length);
}

FileHeader parse_safetensors_header(std::string_view begin, int64_t file_bytes,
                                    const std::string& file) {
  const int64_t data_offset = safetensors_data_offset(begin, file_bytes, file);
  const std::string_view text = begin.substr(8, static_cast<size_t>(data_offset - 8));
  if (!text.starts_with('{')) refuse_start(begin, file, "the header does not start with '{'");
  HeaderReader reader(file);
  Json::sax_parse(text.begin(), text.end(), &reader);
  FileHeader header = reader.take();
  header.data_offset = data_offset;
  const int64_t data_bytes = file_bytes - data_offset;
  for (const auto& [name, entry] : header.tensors) {
    base::check_stop();
    check_entry(file, name, entry, data_bytes);
  }
  check_cover(file, header, data_bytes);
  return header;
}

std::optional<DType> dtype_of(const std::string& text) {
  for (int i = 0; tensor::size_of(static_cast<DType>(i)) > 0; ++i)
    if (text == spelled(static_cast<DType>(i))) return static_cast<DType>(i);
  return std::nullopt;
}

const char* spelled(DType dtype) {
  switch (dtype) {
    case DType::f32: return "F32";
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
    case DType::i32: return "I32";
    case DType::i64: return "I64";
    case DType::u8: return "U8";
    case DType::i8: return "I8";
  }
  return "?";
}

}  // namespace tessera::load
