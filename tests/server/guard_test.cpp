#include "server/guard.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "server/digest.h"
#include "server/header_values.h"
#include "server/listener.h"
#include "server/routes.h"

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
}

TEST(Guard, ReadsAHostAsAHostAndAPort) {
  for (const char* host :
       {"a", "a:1", "a-b.c_d:65535", "127.0.0.1:80", "[::1]", "[2001:db8::1]:8080"})
    EXPECT_NE(host_of(host), "") << host;
  for (const char* host :
       {"",         ":",       ":80",       "a:",  "a:x",    "a:80x",   "a:65536",
        "a:999999", "a:80:80", "a:80@evil", "a@b", "a b",    "a/b",     "[::1]evil.com",
        "[::1",     "::1",     "[]",        "[a]", "[::1]:", "[::1]80", "[127.0.0.1]",
        "a,b"})
    EXPECT_EQ(host_of(host), "") << host;
  for (const char* host : {"127.0.0.1.5", "127.1", "127.0.0.256", "127.0.0.1.", "127.evil"})
    EXPECT_FALSE(is_loopback(host)) << host;
  EXPECT_TRUE(is_loopback("LocalHost"));
}

TEST(Guard, BelievesABrowserAboutWhereItIs) {
  const Guard guard({}, true);
  const auto status = [&](const char* site, const char* path, const char* mode = "no-cors",
                          const char* dest = "image") {
    return status_of(guard,
                     {{"host", "localhost"},
                      {"sec-fetch-site", site},
                      {"sec-fetch-mode", mode},
                      {"sec-fetch-dest", dest}},
                     "GET", path);
  };
  for (const char* site : {"same-origin", "none"}) EXPECT_EQ(status(site, "/assets/icon.svg"), 200);
  for (const char* site : {"cross-site", "same-site", "elsewhere"}) {
    EXPECT_EQ(status(site, "/assets/icon.svg"), 403);
    EXPECT_EQ(status(site, "/jobs/x/results/0"), 403);
    EXPECT_EQ(status(site, "/jobs", "navigate", "document"), 403);
    EXPECT_EQ(status(site, "/", "navigate", "iframe"), 403);
    EXPECT_EQ(status(site, "/", "no-cors", "document"), 403);
    EXPECT_EQ(status(site, "/", "navigate", "document"), 200);
  }
  EXPECT_EQ(status_of(guard, {{"host", "localhost"}, {"origin", ""}}), 403);
}

TEST(Guard, OpenPathsAreReadAlone) {
  const Guard guard({}, true);
  const auto address_status = [](const std::string& method, const std::string& path) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.headers = {{"content-type", "application/json"}};
    try {
      check_address(request);
    } catch (const Refusal& refusal) {
      return refusal.status();
    }
    return 200;
  };
  for (const char* path : {"/", "/healthz", "/readyz", "/assets/main.js"}) {
    for (const char* method : {"GET", "HEAD"}) {
      EXPECT_EQ(status_of(guard, {{"host", "localhost"}}, method, path), 200) << path;
      EXPECT_EQ(address_status(method, path), 200) << path;
    }
    for (const char* method : {"POST", "DELETE", "PUT", "OPTIONS"})
      EXPECT_EQ(address_status(method, path), 405) << path;
  }
}

TEST(Guard, TurnsAwayOtherSites) {
  const Guard guard({}, true);
  EXPECT_EQ(status_of(guard, {{"host", "localhost:8080"}}), 200);
  EXPECT_EQ(status_of(guard, {{"host", "[::1]:8080"}}), 200);
  EXPECT_EQ(status_of(guard, {}), 400);
  EXPECT_EQ(status_of(guard, {{"host", "."}}), 400);
  EXPECT_EQ(status_of(guard, {{"host", "evil.example"}}), 421);
  EXPECT_EQ(status_of(guard, {{"host", "localhost"}, {"origin", "http://evil.example"}}), 403);
  EXPECT_EQ(status_of(guard, {{"host", "localhost"}, {"origin", "null"}}), 403);
  EXPECT_EQ(status_of(guard, {{"host", "localhost"}, {"origin", "http://localhost"}}), 200);
  for (const char* host : {"LocalHost:8080", "localhost.", "localhost.:80", "127.0.0.1.:8080"})
    EXPECT_EQ(status_of(guard, {{"host", host}}), 200) << host;
  for (const char* host : {"localhost..", ".localhost", "localhost.evil.example"})
    EXPECT_EQ(status_of(guard, {{"host", host}}), 421) << host;
  EXPECT_EQ(status_of(guard, {{"host", "localhost:80"}, {"origin", "HTTP://LOCALHOST"}}), 200);
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

TEST_F(KeysTest, OnlyAnOperatorSeesTheNumbersOfAll) {
  write("root 0123456789abcdef0 operator\nanna 0123456789abcdef1\n");
  const Guard guard(ApiKeys(path_), false);
  HttpRequest request;
  request.path = "/status";
  request.headers = {{"host", "x"}, {"authorization", "Bearer 0123456789abcdef0"}};
  guard.admit(request);
  EXPECT_TRUE(request.sees_all);
  request.headers["authorization"] = "Bearer 0123456789abcdef1";
  guard.admit(request);
  EXPECT_FALSE(request.sees_all);
  EXPECT_EQ(request.client, "anna");
}

TEST_F(KeysTest, NamesWhoAsks) {
  write("# all\nanna 0123456789abcdef0\n\n0123456789abcdef1\n");
  const ApiKeys keys(path_);
  ASSERT_NE(keys.owner_of("Bearer 0123456789abcdef0"), nullptr);
  EXPECT_EQ(keys.owner_of("Bearer 0123456789abcdef0")->name, "anna");
  EXPECT_EQ(keys.owner_of("Bearer 0123456789abcdef1")->name, "key 11810347");
  for (const char* given :
       {"", "Bearer ", "Bearer 0123456789abcdef", "Bearer 0123456789abcdef00", "0123456789abcdef0",
        "Bearer0123456789abcdef0", "Bearer 0123456789ABCDEF0", "Basic 0123456789abcdef0"})
    EXPECT_EQ(keys.owner_of(given), nullptr) << given;
  for (const char* scheme : {"bearer ", "BEARER ", "Bearer  "})
    EXPECT_EQ(keys.owner_of(std::string(scheme) + "0123456789abcdef0")->name, "anna") << scheme;
  const Guard guard(keys, false);
  EXPECT_EQ(status_of(guard, {{"host", "x"}}), 401);
  EXPECT_EQ(status_of(guard, {{"host", "x"}}, "GET", "/healthz"), 200);
  EXPECT_EQ(status_of(guard, {{"host", "x"}, {"authorization", "Bearer 0123456789abcdef0"}}), 200);
}

// A client keeps all jobs when lines of the file change.
TEST_F(KeysTest, AKeyWithoutANameIsCalledByItself) {
  write("key-of-carol-aaaaaaaaaaaa\nkey-of-dave-bbbbbbbbbbbbb\n");
  const std::string before = ApiKeys(path_).owner_of("Bearer key-of-dave-bbbbbbbbbbbbb")->name;
  write("# carol left\n\nkey-of-dave-bbbbbbbbbbbbb\nkey-of-eve-cccccccccccccc\n");
  const ApiKeys keys(path_);
  EXPECT_EQ(keys.owner_of("Bearer key-of-dave-bbbbbbbbbbbbb")->name, before);
  EXPECT_NE(keys.owner_of("Bearer key-of-eve-cccccccccccccc")->name, before);
  EXPECT_EQ(before, "key " + sha256("key-of-dave-bbbbbbbbbbbbb").substr(0, 8));
}

TEST_F(KeysTest, AClientMayHaveSeveralKeys) {
  write("anna 0123456789abcdef0\nbert 0123456789abcdef1\nanna 0123456789abcdef2\n");
  const ApiKeys keys(path_);
  EXPECT_EQ(keys.names(), (std::vector<std::string>{"anna", "bert"}));
  EXPECT_EQ(keys.rotated(), std::vector<std::string>{"anna"});
  EXPECT_EQ(keys.owner_of("Bearer 0123456789abcdef2")->name, "anna");
}

TEST_F(KeysTest, KnowsOperators) {
  write("\xef\xbb\xbfroot 0123456789abcdef0 operator\r\nanna 0123456789abcdef1\r\n");
  const ApiKeys keys(path_);
  EXPECT_EQ(keys.names(), (std::vector<std::string>{"root", "anna"})) << "no byte order mark";
  EXPECT_TRUE(keys.owner_of("Bearer 0123456789abcdef0")->is_operator);
  EXPECT_FALSE(keys.owner_of("Bearer 0123456789abcdef1")->is_operator);
  write("anna 0123456789abcdef0\nanna 0123456789abcdef1 operator\n");
  EXPECT_THROW(ApiKeys{path_}, Error);
}

TEST_F(KeysTest, AFileThatOthersUseIsRefused) {
  for (const mode_t mode : {0644, 0602, 0601, 0620, 0666, 0660}) {
    write("anna 0123456789abcdef0\n", mode);
    EXPECT_THROW(ApiKeys{path_}, Error) << std::oct << mode;
  }
  for (const mode_t mode : {0600, 0400, 0640}) {
    write("anna 0123456789abcdef0\n", mode);
    EXPECT_TRUE(ApiKeys(path_).any()) << std::oct << mode;
  }
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_THROW(ApiKeys{path_}, Error);
}

TEST_F(KeysTest, ANameIsNoAddressAndNoControl) {
  for (const char* name : {"127.0.0.1", "::1", "?", "a\x1b[2J", "\xc2\x9b"}) {
    write(std::string(name) + " 0123456789abcdef0\n");
    EXPECT_THROW(ApiKeys{path_}, Error) << name;
  }
  EXPECT_TRUE(is_address("127.8.9.10"));
  EXPECT_TRUE(is_address("fe80::1"));
  for (const char* client : {"anna", "key 3f9a1c02", "line 4", "127.0.0.1.x", ""})
    EXPECT_FALSE(is_address(client)) << client;
}

TEST(Digest, IsThatOfTheStandard) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(WrongKeys, AreSlowedDownByAddress) {
  WrongKeys keys;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(keys.count("10.0.0.1", 100));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(keys.count("10.0.0.1", 101));
  EXPECT_FALSE(keys.count("10.0.0.2", 101));
  EXPECT_FALSE(keys.count("10.0.0.1", 107)) << "one more after six seconds";
  EXPECT_TRUE(keys.count("10.0.0.1", 107));
  for (int i = 0; i < 10; ++i) keys.count("2001:db8::" + std::to_string(i), 110);
  EXPECT_TRUE(keys.count("2001:db8::ffff", 110)) << "a network of IPv6 is one";
  for (int i = 0; i < 20000; ++i) keys.count("a" + std::to_string(i), 120);
  EXPECT_LE(keys.addresses(), 4096U);
}

TEST_F(KeysTest, RefusesWhatIsNoFileOfKeys) {
  for (const char* text : {"", "# nothing\n", "short\n", "a b c\n", "anna 0123456789abcdef root\n",
                           "anna 0123456789abcdef operator more\n",
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

}  // namespace
}  // namespace tessera::server
