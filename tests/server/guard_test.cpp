#include "server/guard.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "server/base64.h"
#include "server/listener.h"

namespace tessera::server {
namespace {

int status_of(const Guard& guard, const std::map<std::string, std::string>& headers,
              const std::string& method = "GET", const std::string& path = "/status") {
  HttpRequest request;
  request.method = method;
  request.path = path;
  request.headers = headers;
  try {
    guard.admit(request);
  } catch (const Refusal& refusal) {
    return refusal.status();
  }
  return 200;
}

TEST(Guard, KnowsThisMachine) {
  for (const char* host : {"localhost", "127.0.0.1", "127.9.9.9", "::1"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host :
       {"", "0.0.0.0", "localhost.", "127.0.0.1.x", "128.0.0.1", "::", "example.org"})
    EXPECT_FALSE(is_loopback(host)) << host;
  EXPECT_EQ(host_of("localhost:80"), "localhost");
  EXPECT_EQ(host_of("[::1]:80"), "[::1]");
}

TEST(Guard, TurnsAwayOtherSites) {
  const Guard guard({}, true);
  EXPECT_EQ(status_of(guard, {{"host", "localhost:8080"}}), 200);
  EXPECT_EQ(status_of(guard, {{"host", "[::1]:8080"}}), 200);
  EXPECT_EQ(status_of(guard, {}), 400);
  EXPECT_EQ(status_of(guard, {{"host", "evil.example"}}), 421);
  EXPECT_EQ(status_of(guard, {{"host", "localhost"}, {"origin", "http://evil.example"}}), 403);
  EXPECT_EQ(status_of(guard, {{"host", "localhost"}, {"origin", "null"}}), 403);
  EXPECT_EQ(status_of(guard, {{"host", "localhost"}, {"origin", "http://localhost"}}), 200);
  EXPECT_EQ(status_of(guard, {{"host", "localhost"}}, "POST", "/jobs"), 415);
  EXPECT_EQ(
      status_of(guard, {{"host", "localhost"}, {"content-type", "application/json; charset=utf-8"}},
                "POST", "/jobs"),
      200);
}

class KeysTest : public testing::Test {
 protected:
  void write(const std::string& text, mode_t mode = 0600) {
    path_ = testing::TempDir() + "keys-" + std::to_string(::getpid());
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string path_;
};

TEST_F(KeysTest, NamesWhoAsks) {
  write("# all\nanna 0123456789abcdef0\n\n0123456789abcdef1\n");
  const ApiKeys keys(path_);
  EXPECT_EQ(keys.name_of("Bearer 0123456789abcdef0"), "anna");
  EXPECT_EQ(keys.name_of("Bearer 0123456789abcdef1"), "line 4");
  for (const char* given :
       {"", "Bearer ", "Bearer 0123456789abcdef", "Bearer 0123456789abcdef00", "0123456789abcdef0",
        "bearer 0123456789abcdef0", "Basic 0123456789abcdef0"})
    EXPECT_EQ(keys.name_of(given), "") << given;
  const Guard guard(keys, false);
  EXPECT_EQ(status_of(guard, {{"host", "x"}}), 401);
  EXPECT_EQ(status_of(guard, {{"host", "x"}}, "GET", "/healthz"), 200);
  EXPECT_EQ(status_of(guard, {{"host", "x"}, {"authorization", "Bearer 0123456789abcdef0"}}), 200);
}

TEST_F(KeysTest, RefusesWhatIsNoFileOfKeys) {
  for (const char* text : {"", "# nothing\n", "short\n", "a b c\n",
                           "anna 0123456789abcdef\nberta 0123456789abcdef\n"}) {
    write(text);
    EXPECT_THROW(ApiKeys{path_}, Error) << text;
  }
  write("0123456789abcdef\n", 0644);
  EXPECT_THROW(ApiKeys{path_}, Error);
  EXPECT_THROW(ApiKeys{"/nowhere/keys"}, Error);
}

TEST(Keys, AreComparedWhole) {
  EXPECT_TRUE(same_text("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd", "abcabc"})
    EXPECT_FALSE(same_text(other, "abc")) << other;
  EXPECT_FALSE(same_text("abc", ""));
  EXPECT_TRUE(same_text("", ""));
}

TEST(Base64, IsThatOfTheRfc) {
  const std::pair<const char*, const char*> known[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : known) EXPECT_EQ(base64(bytes), text);
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

}  // namespace
}  // namespace tessera::server
