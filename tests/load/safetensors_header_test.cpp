#include "load/safetensors_header.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::load {
namespace {

std::string image_of(const std::string& header, size_t data_bytes, int64_t claimed = -1) {
  const uint64_t length = claimed < 0 ? header.size() : static_cast<uint64_t>(claimed);
  std::string image;
  for (int i = 0; i < 8; ++i) image += static_cast<char>(length >> (8 * i) & 0xff);
  return image + header + std::string(data_bytes, '\1');
}

FileHeader parsed(const std::string& image) {
  return parse_safetensors_header(image, static_cast<int64_t>(image.size()), "bad.safetensors");
}

std::string error_of(const std::string& image) {
  try {
    parsed(image);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    return error.what();
  }
  return "no error";
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}

TEST(SafetensorsHeader, RefusesMoreTensorsThanAnyModelHas) {
  std::string header = "{" + tensor("a", "U8", "0", "0,0");
  for (int i = 0; i < 1 << 18; ++i) header += "," + tensor(std::to_string(i), "U8", "0", "0,0");
  EXPECT_NE(error_of(image_of(header + "}", 0)).find("262144 tensors"), std::string::npos);
  std::string notes = "{\"__metadata__\":{\"a\":\"\"";
  for (int i = 0; i < 1 << 16; ++i) notes += ",\"" + std::to_string(i) + "\":\"\"";
  EXPECT_NE(error_of(image_of(notes + "}}", 0)).find("65536 entries"), std::string::npos);
}

struct Case {
  const char* what;
  std::string image;
  std::vector<std::string> says;
};

std::vector<Case> length_cases() {
  const std::string good = "{" + tensor("a", "F32", "2", "0,8") + "}";
  return {
      {"empty file", "", {"0 bytes", "at least 8"}},
      {"seven bytes", "1234567", {"7 bytes"}},
      {"length beyond the file", image_of(good, 0, 1000), {"claims 1000 bytes"}},
      {"length above the limit",
       image_of(good, 8, 100'000'001),
       {"100000001", "at most 100000000"}},
      {"length of all ones", std::string(8, '\xff') + good, {"18446744073709551615"}},
      {"length zero", image_of("", 8), {"does not start with '{'"}},
      {"leading space", image_of(" " + good, 8), {"does not start with '{'"}},
      {"a pickle", image_of("\x80\x02}q", 8), {"does not start with '{'"}},
      {"cut JSON", image_of(good.substr(0, 20), 8), {"not valid JSON"}},
      {"two documents", image_of(good + "{}", 8), {"not valid JSON"}},
      {"bad UTF-8", image_of("{" + tensor("\xff", "F32", "2", "0,8") + "}", 8), {"not valid JSON"}},
      {"truncated data", image_of(good, 4), {"'a'", "[0, 8]", "<= 4"}},
      {"a pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", {"Git LFS"}},
      {"a page", "<!DOCTYPE html><html><body>Sign in</body></html>", {"an HTML page"}},
      {"an archive", std::string("PK\3\4\0\0\0\0archive", 15), {"a PyTorch pickle"}},
      {"a short pickle", std::string("\x80\2\0\0\0\0\0\0.", 9), {"a PyTorch pickle"}},
      {"cut behind a length like a pickle's", image_of(good, 8, 0x0280), {"claims 640 bytes"}},
      {"a server's answer", "Entry not found", {"text that begins with 'Entry not found'"}},
      {"zeros", std::string(64, '\0'), {"full of zeros"}},
      {"trailing data", image_of(good, 9), {"byte 8 of 9", "no rest"}},
  };
}

std::vector<Case> field_cases() {
  auto one = [](const std::string& body, size_t bytes = 8) {
    return image_of("{" + body + "}", bytes);
  };
  return {
      {"unknown dtype", one(tensor("a", "F31", "2", "0,8")), {"'a'", "'F31'"}},
      {"same name twice",
       one(tensor("a", "F32", "2", "0,8") + "," + tensor("a", "F32", "2", "0,8")),
       {"names 'a' twice"}},
      {"no dtype", one(R"("a":{"shape":[2],"data_offsets":[0,8]})"), {"'a' lacks"}},
      {"no offsets", one(R"("a":{"dtype":"F32","shape":[2]})"), {"'a' lacks"}},
      {"one offset", one(tensor("a", "F32", "2", "0")), {"'a' lacks"}},
      {"three offsets", one(tensor("a", "F32", "2", "0,8,9")), {"third"}},
      {"no shape", one(R"("a":{"dtype":"F32","data_offsets":[0,8]})"), {"'a' lacks"}},
      {"shape twice",
       one(R"("a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})"),
       {"repeated", "'shape'"}},
      {"unknown field",
       one(R"("a":{"dtype":"F32","strides":[2],"shape":[2],"data_offsets":[0,8]})"),
       {"unknown", "'strides'"}},
      {"negative size", one(tensor("a", "F32", "-2", "0,8")), {"-2", "'shape'"}},
      {"fraction", one(tensor("a", "F32", "2.5", "0,8")), {"2.5"}},
      {"huge number", one(tensor("a", "F32", "99999999999999999999", "0,8")), {"9999999"}},
      {"number above int64", one(tensor("a", "F32", "9223372036854775808", "0,8")), {"92233720"}},
      {"text as size", one(tensor("a", "F32", "\"2\"", "0,8")), {"'2'"}},
      {"nested array", one(tensor("a", "F32", "[2]", "0,8")), {"an array"}},
      {"object as size", one(tensor("a", "F32", "{}", "0,8")), {"an object"}},
      {"dtype a number",
       one(R"("a":{"dtype":7,"shape":[2],"data_offsets":[0,8]})"),
       {"7", "'dtype'"}},
      {"shape a number", one(R"("a":{"dtype":"F32","shape":2,"data_offsets":[0,8]})"), {"'shape'"}},
      {"shape null", one(R"("a":{"dtype":"F32","shape":null,"data_offsets":[0,8]})"), {"null"}},
      {"entry an array", one(R"("a":[1])"), {"an array", "'a'"}},
      {"entry a string", one(R"("a":"b")"), {"'b'"}},
      {"root an array", image_of("[]", 0), {"does not start"}},
      {"deep nesting", one("\"a\":" + std::string(100000, '{')), {"not valid JSON"}},
      {"deep arrays", one("\"a\":{\"shape\":" + std::string(100000, '[')), {"an array"}},
      {"33 axes",
       one(tensor("a", "U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
                  "0,1"),
           1),
       {"more than 32 axes"}},
      {"metadata number", one(R"("__metadata__":{"a":1})", 0), {"'__metadata__'"}},
      {"metadata nested", one(R"("__metadata__":{"a":{}})", 0), {"an object"}},
      {"metadata of null", one(R"("__metadata__":{"a":null})", 0), {"null in '__metadata__'"}},
      {"null for a tensor", one(R"("a":null)", 0), {"null as entry 'a'"}},
      {"metadata twice", one(R"("__metadata__":null,"__metadata__":{})", 0), {"twice"}},
      {"metadata twice", one(R"("__metadata__":{},"__metadata__":{})", 0), {"twice"}},
      {"metadata key twice", one(R"("__metadata__":{"k":"1","k":"2"})", 0), {"'k' twice"}},
  };
}

std::vector<Case> offset_cases() {
  auto two = [](const std::string& a, const std::string& b, size_t bytes) {
    return image_of("{" + a + "," + b + "}", bytes);
  };
  auto one = [](const std::string& body, size_t bytes) {
    return image_of("{" + body + "}", bytes);
  };
  const std::string first = tensor("a", "F32", "2", "0,8");
  return {
      {"begin behind end", one(tensor("a", "F32", "2", "8,0"), 8), {"[8, 0]"}},
      {"end beyond the file", one(tensor("a", "F32", "2", "0,16"), 8), {"[0, 16]", "<= 8"}},
      {"end at int64 max", one(tensor("a", "F32", "2", "0,9223372036854775807"), 8), {"[0, 92233"}},
      {"too few bytes for the shape",
       one(tensor("a", "F32", "3", "0,8"), 8),
       {"8 bytes", "expected 12"}},
      {"too many", one(tensor("a", "F16", "3", "0,8"), 8), {"8 bytes", "expected 6"}},
      {"overflow of the product",
       one(tensor("a", "F32", "4294967296,4294967296,4", "0,8"), 8),
       {"overflows"}},
      {"overflow to exactly zero",
       one(tensor("a", "U8", "4611686018427387904,4", "0,0"), 0),
       {"overflows"}},
      {"overlap", two(first, tensor("b", "F32", "2", "4,12"), 12), {"'b'", "byte 4", "overlap"}},
      {"the same bytes twice", two(first, tensor("b", "F32", "2", "0,8"), 8), {"overlap"}},
      {"hole", two(first, tensor("b", "F32", "2", "12,20"), 20), {"'b'", "byte 12", "hole"}},
      {"hole at the start", one(tensor("a", "F32", "2", "8,16"), 16), {"hole"}},
      {"half a byte", one(tensor("a", "F4", "3", "0,1"), 1), {"whole bytes"}},
  };
}

void expect_errors(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const std::string message = error_of(c.image);
    EXPECT_EQ(message.find('\n'), std::string::npos) << c.what;
    EXPECT_NE(message.find("bad.safetensors"), std::string::npos) << c.what << ": " << message;
    EXPECT_LT(message.size(), 600u) << c.what;
    for (const std::string& part : c.says)
      EXPECT_NE(message.find(part), std::string::npos) << c.what << ": " << message;
  }
}

}  // namespace

TEST(SafetensorsHeader, RefusesBadLengths) { expect_errors(length_cases()); }
TEST(SafetensorsHeader, RefusesBadFields) { expect_errors(field_cases()); }
TEST(SafetensorsHeader, RefusesBadOffsets) { expect_errors(offset_cases()); }

TEST(SafetensorsHeader, ReadsEntriesAndMetadata) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},)" + tensor("b", "BF16", "2,3", "8,20") + "," +
      tensor("a", "F32", "2", "0,8") + "," + tensor("none", "F64", "0,7", "8,8") + "," +
      tensor("one", "U8", "", "20,21") + "}   ";
  const FileHeader read = parsed(image_of(header, 21));
  EXPECT_EQ(read.data_offset, static_cast<int64_t>(8 + header.size()));
  EXPECT_EQ(read.metadata.at("format"), "pt");
  ASSERT_EQ(read.tensors.size(), 4u);
  EXPECT_EQ(read.tensors.at("b").sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(read.tensors.at("b").begin, 8);
  EXPECT_EQ(read.tensors.at("none").bytes(), 0);
  EXPECT_EQ(read.tensors.at("one").bytes(), 1);
}

TEST(SafetensorsHeader, MetadataMayBeNull) {
  const FileHeader read =
      parsed(image_of(R"({"__metadata__":null,)" + tensor("a", "F32", "2", "0,8") + "}", 8));
  EXPECT_TRUE(read.metadata.empty());
  EXPECT_EQ(read.tensors.size(), 1u);
}

TEST(SafetensorsHeader, ReadsAnEmptySet) { EXPECT_TRUE(parsed(image_of("{}", 0)).tensors.empty()); }

TEST(SafetensorsHeader, SpellsEveryDtype) {
  using tensor::DType;
  for (const DType d :
       {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8, DType::i8})
    EXPECT_EQ(dtype_of(spelled(d)), d);
  EXPECT_EQ(dtype_of("F64"), std::nullopt);
}

}  // namespace tessera::load
