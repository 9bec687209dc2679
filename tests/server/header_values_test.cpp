#include "server/header_values.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

TEST(HeaderValues, MediaTypesHaveNoCase) {
  for (const char* header :
       {"application/json", "Application/JSON", "application/json;charset=utf-8",
        "application/json ; charset=utf-8", "APPLICATION/json\t;", " application/json"})
    EXPECT_EQ(media_type_of(header), "application/json") << header;
  for (const char* header : {"", ";", "application/jsonx", "text/plain; application/json"})
    EXPECT_NE(media_type_of(header), "application/json") << header;
}

TEST(HeaderValues, HostsHaveNoCaseAndMayEndInADot) {
  for (const char* header :
       {"localhost", "localhost:80", "LocalHost:8080", "localhost.", "LOCALHOST.:1"})
    EXPECT_EQ(host_of(header), "localhost") << header;
  EXPECT_EQ(host_of("[::1]:80"), "[::1]");
  EXPECT_EQ(host_of("[FE80::1]"), "[fe80::1]");
  for (const char* header : {"localhost..", "localhost.x", "", ".", "[::1"})
    EXPECT_NE(host_of(header), "localhost") << header;
}

TEST(HeaderValues, AnOriginIsASchemeAHostAndAPort) {
  for (const auto& [origin, host] : {std::pair{"http://localhost:8080", "localhost:8080"},
                                     {"HTTP://LocalHost:8080", "localhost.:8080"},
                                     {"https://a.example", "A.Example"},
                                     {"https://a.example", "a.example:443"},
                                     {"http://a.example:80", "a.example"},
                                     {"http://[::1]:8080", "[::1]:8080"}})
    EXPECT_TRUE(same_origin(origin, host)) << origin << " " << host;
  for (const auto& [origin, host] : {std::pair{"http://localhost:8081", "localhost:8080"},
                                     {"http://localhost", "localhost:8080"},
                                     {"https://a.example", "a.example:80"},
                                     {"http://a.example.evil.example", "a.example"},
                                     {"http://a.example/b", "a.example"},
                                     {"ftp://a.example", "a.example"},
                                     {"a.example", "a.example"},
                                     {"null", "localhost"}})
    EXPECT_FALSE(same_origin(origin, host)) << origin << " " << host;
}

TEST(HeaderValues, SchemesHaveNoCase) {
  EXPECT_EQ(credentials_of("bEARER  Key ", "Bearer"), "Key");
  for (const char* header : {"", "Bearer", "Bearer ", "Basic Key", "BearerKey"})
    EXPECT_EQ(credentials_of(header, "Bearer"), "") << header;
  for (const char* header : {"https", "HTTPS", " https , http"})
    EXPECT_EQ(first_of(header), "https") << header;
  EXPECT_EQ(first_of("http,https"), "http");
}

TEST(HeaderValues, TagsStandInLists) {
  for (const char* header : {"\"a\"", "*", "\"b\", \"a\"", "W/\"a\"", "\"b\" ,W/\"a\" "})
    EXPECT_TRUE(names_tag(header, "\"a\"")) << header;
  for (const char* header : {"", "a", "\"ab\"", "\"b\""})
    EXPECT_FALSE(names_tag(header, "\"a\"")) << header;
}

}  // namespace
}  // namespace tessera::server
