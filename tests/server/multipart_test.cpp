#include "server/multipart.h"

#include <gtest/gtest.h>

#include "server/refusal.h"

namespace tessera::server {
namespace {

const std::string kType = "multipart/form-data; boundary=xyz";

std::string part(const std::string& head, const std::string& content) {
  return "--xyz\r\n" + head + "\r\n\r\n" + content + "\r\n";
}
std::string field(const std::string& name, const std::string& content) {
  return part("Content-Disposition: form-data; name=\"" + name + "\"", content);
}

std::string refusal(const std::string& body, const std::string& type = kType) {
  try {
    parse_form(body, type);
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.status(), 400);
    EXPECT_EQ(std::string(refusal.what()).find('\n'), std::string::npos);
    return refusal.what();
  }
  return "";
}

}  // namespace

TEST(Multipart, ReadsFieldsAndFiles) {
  const std::string bytes("\x89PNG\r\n\r\n--xy\0z\r\n--xy", 19);
  const std::string body =
      field("prompt", "a cat") +
      part(
          "content-disposition: form-data; filename=\"a \\\"b\\\".png\"; name=image\r\n"
          "Content-Type: image/png",
          bytes) +
      field("empty", "") + "--xyz--\r\n";
  for (const char* type : {"multipart/form-data; boundary=xyz",
                           "Multipart/Form-Data; charset=utf-8; boundary=\"xyz\""}) {
    const auto parts = parse_form(body, type);
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_EQ(parts[0].name, "prompt");
    EXPECT_EQ(parts[0].content, "a cat");
    EXPECT_FALSE(parts[0].file);
    EXPECT_EQ(parts[1].name, "image");
    EXPECT_EQ(parts[1].content, bytes);
    EXPECT_TRUE(parts[1].file);
    EXPECT_EQ(parts[2].content, "");
  }
  EXPECT_TRUE(parse_form("--xyz--", kType).empty());
}

TEST(Multipart, RefusesOtherBoundaries) {
  const std::string body = field("a", "b") + "--xyz--";
  for (const char* type :
       {"multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary",
        "multipart/form-data; boundary=\"xyz", "multipart/form-data; boundary=x\xff",
        "multipart/form-data; boundary=xyz; boundary=xyz", "multipart/form-data; boundary=other"})
    EXPECT_NE(refusal(body, type), "") << type;
  EXPECT_NE(refusal(body, "multipart/form-data; boundary=" + std::string(71, 'x')), "");
}

TEST(Multipart, RefusesWhatIsMalformed) {
  const std::string good = field("a", "b") + "--xyz--";
  EXPECT_EQ(refusal(good), "");
  for (size_t i = 0; i < good.size(); ++i)
    EXPECT_NE(refusal(good.substr(0, i)), "") << "cut at " << i;
  for (const std::string& bad :
       {"before\r\n" + good, good + "behind", field("", "b") + "--xyz--",
        field(std::string(101, 'a'), "b") + "--xyz--", part("X: y", "b") + "--xyz--",
        part("Content-Disposition: attachment; name=a", "b") + "--xyz--",
        part("Content-Disposition: form-data; name=\"a", "b") + "--xyz--",
        part("Content-Disposition: form-data; name=a; name=b", "b") + "--xyz--",
        part(": x\r\nContent-Disposition: form-data; name=a", "b") + "--xyz--",
        part(" folded\r\nContent-Disposition: form-data; name=a", "b") + "--xyz--",
        part("Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b",
             "") +
            "--xyz--"})
    EXPECT_NE(refusal(bad), "") << bad;
}

TEST(Multipart, RefusesFormsInsideAndEncodings) {
  const std::string head = "Content-Disposition: form-data; name=a\r\n";
  EXPECT_NE(refusal(part(head + "Content-Type: Multipart/Mixed; boundary=b", "x") + "--xyz--")
                .find("a form of its own"),
            std::string::npos);
  EXPECT_NE(refusal(part(head + "Content-Transfer-Encoding: base64", "x") + "--xyz--"), "");
  EXPECT_EQ(refusal(part(head + "Content-Transfer-Encoding: binary", "x") + "--xyz--"), "");
}

TEST(Multipart, HasLimits) {
  std::string many;
  for (int i = 0; i < 64; ++i) many += field("a" + std::to_string(i), "");
  EXPECT_EQ(refusal(many + "--xyz--"), "");
  EXPECT_NE(refusal(many + field("b", "") + "--xyz--").find("more than 64 parts"),
            std::string::npos);
  const std::string head = "Content-Disposition: form-data; name=a\r\n";
  EXPECT_NE(refusal(part(head + "X: " + std::string(5000, 'x'), "") + "--xyz--").find("4096"),
            std::string::npos);
  std::string lines = "Content-Disposition: form-data; name=a";
  for (int i = 0; i < 16; ++i) lines += "\r\nX" + std::to_string(i) + ": y";
  EXPECT_NE(refusal(part(lines, "") + "--xyz--").find("too many headers"), std::string::npos);
}

// Bytes similar to a boundary cost no more than others.
TEST(Multipart, ReadsManyNearBoundaries) {
  std::string content;
  for (int i = 0; i < 200'000; ++i) content += "\r\n--xy";
  EXPECT_EQ(parse_form(field("a", content) + "--xyz--", kType).at(0).content.size(),
            content.size());
}

}  // namespace tessera::server
