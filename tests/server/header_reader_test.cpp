#include "server/header_reader.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

using Lines = std::vector<HeaderLine>;

int status_of(const Lines& lines) {
  HttpRequest request;
  try {
    read_headers(lines, request);
  } catch (const Refusal& refusal) {
    return refusal.status();
  }
  return 200;
}

TEST(HeaderReader, ReadsNamesInSmallLetters) {
  HttpRequest request;
  read_headers({{"HoSt", "a"}, {"X-Y_z.1", " b\t"}, {"Cookie", "c"}, {"cookie", "d"}}, request);
  EXPECT_EQ(request.header("host"), "a");
  EXPECT_EQ(request.header("x-y_z.1"), "b");
  EXPECT_EQ(request.header("cookie"), "c, d");
}

TEST(HeaderReader, RefusesWhatCanBeReadInTwoWays) {
  using namespace std::string_view_literals;
  EXPECT_EQ(status_of({{"Host", "a"}, {"Accept", "b"}}), 200);
  for (const auto name : {""sv, "Host "sv, "Ho st"sv, "Host\t"sv, "H\xc3\xb6st"sv, "(a)"sv,
                          "a\0b"sv, "a,b"sv, "a\x7f"sv})
    EXPECT_EQ(status_of({{name, "x"}}), 400) << name;
  for (const auto value : {"a\0b"sv, "a\rb"sv, "a\nb"sv, "a\x1b[2J"sv, "a\x7f"sv})
    EXPECT_EQ(status_of({{"x", value}}), 400) << value;
  for (const char* name : {"Host", "Authorization", "Content-Length", "Transfer-Encoding", "Origin",
                           "Content-Type", "Last-Event-ID", "X-Forwarded-Proto", "If-None-Match",
                           "Sec-Fetch-Site", "Connection", "Expect"})
    EXPECT_EQ(status_of({{name, "x"}, {name, "x"}}), 400) << name;
}

// Lines as they came, with zeros where the parser ended names and values.
TEST(HeaderReader, KnowsHowLongTheLinesWere) {
  const std::string sent("Host\0 a\0\0X\0\0\0", 14);
  const std::string_view all = sent;
  const Lines lines{{all.substr(0, 4), all.substr(6, 1)}, {all.substr(9, 1), all.substr(11, 0)}};
  EXPECT_EQ(bytes_on_wire(14, lines),
            std::string("GET / HTTP/1.1\r\nHost: a\r\nX:\r\n\r\n").size());
  EXPECT_EQ(bytes_on_wire(14, {{all.substr(6, 1), all.substr(0, 4)}}), 0U) << "before its name";
  EXPECT_EQ(bytes_on_wire(14, {{all.substr(0, 4), {}}}), 0U) << "nowhere";
}

int body_of(const std::map<std::string, std::string>& headers) {
  HttpRequest request;
  request.headers = headers;
  try {
    return static_cast<int>(body_bytes(request, 100));
  } catch (const Refusal& refusal) {
    return -refusal.status();
  }
}

TEST(HeaderReader, ABodyHasALength) {
  EXPECT_EQ(body_of({}), 0);
  EXPECT_EQ(body_of({{"content-length", "100"}}), 100);
  EXPECT_EQ(body_of({{"content-length", "101"}}), -413);
  EXPECT_EQ(body_of({{"content-length", "99999999999999999999999"}}), -413);
  for (const char* none : {"", "-1", "+1", "0x10", "1e1", "1 0", "1,1"})
    EXPECT_EQ(body_of({{"content-length", none}}), -400) << none;
  for (const char* way : {"chunked", "", "identity", "gzip"}) {
    EXPECT_EQ(body_of({{"transfer-encoding", way}}), -411) << way;
    EXPECT_EQ(body_of({{"transfer-encoding", way}, {"content-length", "1"}}), -400) << way;
  }
}

}  // namespace
}  // namespace tessera::server
