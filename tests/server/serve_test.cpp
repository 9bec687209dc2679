// The server and its clients in a single process, so sanitizers see both; see .ci/run.
#include "server/serve.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <iostream>
#include <thread>

#include "server/store.h"
#include "test_paths.h"

namespace tessera::server {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kLimit = 120s;  // limit of any wait; sanitizers and busy machines are slow
const char* const kLong = R"({"model": "shapes", "previews": 1,
                              "request": {"classes": ["red ring"], "steps": 1000, "count": 4}})";
const char* const kShort = R"({"model": "shapes", "previews": 1,
                               "request": {"classes": ["red ring"], "steps": 2}})";

// A connection for a single request. Throws std::runtime_error if the connection breaks.
class Client {
 public:
  Client(int port, const std::string& method, const std::string& path, const std::string& body = "")
      : Client(port, method + " " + path +
                         " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Content-Type: application/json\r\nContent-Length: " +
                         std::to_string(body.size()) + "\r\n\r\n" + body) {}
  Client(int port, const std::string& asked)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{std::chrono::seconds(kLimit).count(), 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    try {
      if (::connect(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
        throw std::runtime_error("nobody listens");
      send(asked);
    } catch (...) {
      ::close(socket_);
      throw;
    }
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& text) const {
    if (::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) != ssize_t(text.size()))
      throw std::runtime_error(text.substr(0, 100) + " cannot be sent");
  }
  /// All received text, up to `until` or to the end.
  const std::string& read(const std::string& until = "") {
    char part[16384];
    while (until.empty() || came_.find(until) == std::string::npos) {
      const ssize_t got = ::recv(socket_, part, sizeof part, 0);
      if (got == 0 && until.empty()) return came_;
      if (got <= 0) throw std::runtime_error("no '" + until + "' in " + came_.substr(0, 300));
      came_.append(part, size_t(got));
    }
    return came_;
  }

 private:
  int socket_;
  std::string came_;
};

class ServeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "serve-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    if (ended_.valid()) end();
    fs::remove_all(folder_);
  }

  void start(double grace, const std::function<void(ServeOptions&)>& change = {}) {
    ServeOptions options;
    options.models = {TESSERA_MODELS_DIR "/shapes", TESSERA_MODELS_DIR "/tasks-a"};
    options.port = 0;
    options.store = folder_;
    options.grace = grace;
    options.run.threads = 2;
    if (change) change(options);
    stop_ = {};
    std::promise<int> port;
    std::future<int> known = port.get_future();
    const auto said = [&port, open = false](const std::string& line) mutable {
      if (open || !line.starts_with("listening at ")) return;
      open = true;
      port.set_value(std::stoi(line.substr(line.rfind(':') + 1)));
    };
    ended_ = std::async(std::launch::async,
                        [options, stop = stop_.get_token(), said] { serve(options, stop, said); });
    port_ = within_limit(known).get();
  }
  // Rethrows the server's error.
  void end() {
    stop_.request_stop();
    within_limit(ended_).get();
  }

  std::string ask(const char* method, const std::string& path, const std::string& body = "") const {
    return Client(port_, method, path, body).read();
  }
  Json json(const char* method, const std::string& path, const std::string& body = "") const {
    const std::string answer = ask(method, path, body);
    return Json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  }
  std::string submit(const char* job) const { return json("POST", "/jobs", job)["id"]; }
  std::string followed(const std::string& id) const {
    return ask("GET", "/jobs/" + id + "/events");
  }

  int port_ = 0;
  std::string folder_;
  std::stop_source stop_;
  std::future<void> ended_;

 private:
  // A hung server cannot be stopped, so the program ends with the reason.
  template <class T>
  static std::future<T>& within_limit(std::future<T>& what) {
    if (what.wait_for(kLimit) == std::future_status::ready) return what;
    std::cerr << "the server neither begins nor ends\n";
    std::_Exit(1);
  }
};

// Waits for all, then rethrows the first error.
void at_once(const std::vector<std::function<void()>>& works) {
  std::vector<std::future<void>> all;
  for (const auto& work : works) all.push_back(std::async(std::launch::async, work));
  for (const auto& one : all) one.wait();
  for (auto& one : all) one.get();
}

TEST_F(ServeTest, ManyClientsAtOnce) {
  start(30);
  const auto image = [this] {
    for (int i = 0; i < 2; ++i) {
      const std::string id = submit(kShort);
      EXPECT_NE(followed(id).find("event: done"), std::string::npos);
      EXPECT_NE(ask("GET", "/jobs/" + id + "/results/0").find("\r\n\r\n\x89PNG"),
                std::string::npos);
      EXPECT_TRUE(json("DELETE", "/jobs/" + id)["removed"]);
    }
  };
  const auto chat = [this] {
    for (const char* more : {"", R"(, "stream": true)"}) {
      const std::string said =
          ask("POST", "/v1/chat/completions",
              R"({"model": "tasks-a", "messages": [{"role": "user", "content": "sort hello="}])" +
                  std::string(more) + "}");
      EXPECT_NE(said.find(*more ? "data: [DONE]" : R"("content":"ehllo")"), std::string::npos)
          << said;
    }
  };
  const auto look = [this] {
    for (const char* path : {"/status", "/metrics", "/jobs", "/v1/models", "/readyz", "/"})
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask("GET", path).starts_with("HTTP/1.1 200")) << path;
  };
  at_once({image, chat, look, image, chat, look});
  end();
  EXPECT_TRUE(Store(folder_).unfinished().empty());
}

TEST_F(ServeTest, CancelsAndClientsThatVanish) {
  start(30);
  const auto cancels = [this] {
    const std::string id = submit(kLong);
    Client follower(port_, "GET", "/jobs/" + id + "/events");
    follower.read("event: preview");
    for (int i = 0; i < 10; ++i)  // each closes in the middle of the stream
      Client(port_, "GET", "/jobs/" + id + "/events").read("event: preview");
    ask("DELETE", "/jobs/" + id);
    EXPECT_NE(follower.read().find("event: cancelled"), std::string::npos);
  };
  // In OpenAI's form a vanished client cancels its job.
  const auto vanishes = [this] {
    std::string id;
    {
      const Client client(port_, "POST", "/v1/images/generations",
                          R"({"model": "shapes", "prompt": "blue star", "steps": 999, "n": 4})");
      const auto limit = std::chrono::steady_clock::now() + kLimit;
      while (id.empty() && std::chrono::steady_clock::now() < limit) {
        const Json all = json("GET", "/jobs");
        for (const Json& job : all["jobs"])
          if (job["request"].value("steps", 0) == 999) id = job["id"];
      }
      Client(port_, "GET", "/jobs/" + id + "/events").read("event: progress");
    }
    EXPECT_NE(followed(id).find("event: cancelled"), std::string::npos);
  };
  at_once({cancels, vanishes});
}

TEST_F(ServeTest, AStopWhileClientsAskLosesNothing) {
  start(0);
  const std::vector<std::string> ids{submit(kLong), submit(kLong), submit(kShort)};
  Client follower(port_, "GET", "/jobs/" + ids[0] + "/events");
  follower.read("event: progress");
  std::atomic<bool> over = false;
  const auto asks = [&] {
    try {
      while (!over) ask("GET", "/status");
    } catch (const std::exception&) {  // the server no longer listens
    }
  };
  const auto stops = [&] {
    end();
    over = true;
  };
  at_once({asks, asks, stops});
  EXPECT_EQ(Store(folder_).unfinished().size(), ids.size());
  start(0);
  for (const std::string& id : {ids[0], ids[1]}) ask("DELETE", "/jobs/" + id);
  EXPECT_NE(followed(ids[2]).find("event: done"), std::string::npos);
}

// A client that sends a byte occasionally does not keep its connection.
TEST_F(ServeTest, ClientsThatTakeTheirTimeAreCutOff) {
  start(0, [](ServeOptions& options) { options.head = options.request = options.idle = 2; });
  const auto trickles = [this](const std::string& begin) {
    Client client(port_, begin);
    const auto limit = std::chrono::steady_clock::now() + kLimit;
    try {
      while (std::chrono::steady_clock::now() < limit) {
        client.send("x");
        std::this_thread::sleep_for(200ms);
      }
      ADD_FAILURE() << "it is open still: " << begin;
    } catch (const std::exception&) {  // closed by the other side
    }
  };
  const std::string post = "POST /jobs HTTP/1.1\r\nHost: localhost\r\n";
  at_once(
      {[&] { trickles("G"); }, [&] { trickles(post + "X: "); },
       [&] { trickles(post + "Content-Type: application/json\r\nContent-Length: 9999\r\n\r\n"); },
       [&] { trickles("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + post); }});
  const std::string id = submit(kShort);
  EXPECT_NE(followed(id).find("event: done"), std::string::npos);
}

TEST_F(ServeTest, RefusesToBindElsewhereWithoutKeys) {
  ServeOptions options;
  options.host = "0.0.0.0";
  options.store = folder_;
  options.models = {TESSERA_MODELS_DIR "/tasks-a"};
  EXPECT_THROW(serve(options, {}, [](const std::string&) {}), Error);
}

}  // namespace
}  // namespace tessera::server
