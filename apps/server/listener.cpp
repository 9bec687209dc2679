#include "server/listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <set>
#include <vector>

#include "server/exchange.h"
#include "server/field_names.h"
#include "server/header_values.h"
#include "server/sockets.h"
#include "tessera/error.h"

namespace tessera::server {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;

MHD_Result add_header(void* to, MHD_ValueKind, const char* name, const char* value) {
  auto& headers = static_cast<HttpRequest*>(to)->headers;
  const std::string key = small(name);
  // Of two that disagree none counts: who stands between may have read the other one.
  if (headers.contains(key) && (key == "host" || key == "authorization" || key == "content-length"))
    headers[key] = "twice";
  else
    headers[key] = value ? value : "";
  return MHD_YES;
}

MHD_Result add_query(void* to, MHD_ValueKind, const char* name, const char* value) {
  static_cast<HttpRequest*>(to)->query[name] = value ? value : "";
  return MHD_YES;
}

// Of a stream, on the thread of the listener.
ssize_t read_stream(void* from, uint64_t, char* to, size_t room) {
  Exchange& exchange = **static_cast<ExchangePtr*>(from);
  while (exchange.rest.empty()) {
    if (exchange.stream_ended) return MHD_CONTENT_READER_END_OF_STREAM;
    if (exchange.ending()) return MHD_CONTENT_READER_END_WITH_ERROR;
    Stream::Piece piece = exchange.answer->stream->next(exchange.waker());
    exchange.rest = std::move(piece.text);
    exchange.stream_ended = piece.ended;
    if (exchange.rest.empty() && exchange.take_beat()) exchange.rest = ": \n\n";
    if (exchange.rest.empty() && !exchange.stream_ended && exchange.sleep()) return 0;
  }
  const size_t size = std::min(room, exchange.rest.size());
  std::copy_n(exchange.rest.data(), size, to);
  exchange.rest.erase(0, size);
  return static_cast<ssize_t>(size);
}

void free_stream(void* from) { delete static_cast<ExchangePtr*>(from); }

}  // namespace

struct Listener::State {
  ServeOptions options;
  Handlers handlers;
  MHD_Daemon* daemon = nullptr;
  int socket = -1, port = 0;
  unsigned ticks = 0;
  std::mutex mutex;
  std::set<ExchangePtr> exchanges;
  std::set<int> reading;  // sockets that the rest of a request, or the next one, comes from
  bool stopping = false;

  MHD_Result access(MHD_Connection* connection, const char* url, const char* method,
                    const char* data, size_t* size, void** memory);
  MHD_Result begin(MHD_Connection* connection, const ExchangePtr& exchange, const char* url,
                   const char* method);
  MHD_Result answer(MHD_Connection* connection, const ExchangePtr& exchange);
  MHD_Result send(MHD_Connection* connection, const ExchangePtr& exchange);
  MHD_Result refuse(MHD_Connection* connection, const ExchangePtr& exchange,
                    const Refusal& refusal);
  MHD_Response* response_of(const ExchangePtr& exchange);
  void completed(Exchange& exchange, bool whole);
  void set_reading(MHD_Connection* connection, bool is);
};

void Listener::State::set_reading(MHD_Connection* connection, bool is) {
  const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  if (!info) return;
  const std::lock_guard lock(mutex);
  if (is)
    reading.insert(info->connect_fd);
  else
    reading.erase(info->connect_fd);
}

namespace {

MHD_Result on_access(void* state, MHD_Connection* connection, const char* url, const char* method,
                     const char*, const char* data, size_t* size, void** memory) {
  try {
    return static_cast<Listener::State*>(state)->access(connection, url, method, data, size,
                                                        memory);
  } catch (const std::exception&) {  // no memory is left: this connection ends, the others go on
    return MHD_NO;
  }
}

void on_connection(void* state, MHD_Connection* connection, void**,
                   MHD_ConnectionNotificationCode code) {
  static_cast<Listener::State*>(state)->set_reading(connection,
                                                    code == MHD_CONNECTION_NOTIFY_STARTED);
}

void on_completed(void* state, MHD_Connection* connection, void** memory,
                  MHD_RequestTerminationCode code) {
  auto* held = static_cast<ExchangePtr*>(*memory);
  *memory = nullptr;
  if (!held) return;
  const ExchangePtr exchange = *held;
  delete held;
  exchange->forget();
  auto& all = *static_cast<Listener::State*>(state);
  all.set_reading(connection, true);
  all.completed(*exchange, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
  const std::lock_guard lock(all.mutex);
  all.exchanges.erase(exchange);
}

void say_nothing(void*, const char*, va_list) {}

}  // namespace

void Listener::State::completed(Exchange& exchange, bool whole) {
  if (exchange.answer && exchange.answer->later && exchange.answer->gone) exchange.answer->gone();
  if (exchange.answer && exchange.answer->stream)
    exchange.answer->stream->closed(exchange.stream_ended && exchange.rest.empty());
  using Seconds = std::chrono::duration<double>;
  const double seconds = Seconds(std::chrono::steady_clock::now() - exchange.begun).count();
  const HttpRequest& request = exchange.request;
  handlers.log({request.method, request.path, request.client, exchange.status, seconds, whole});
}

MHD_Result Listener::State::access(MHD_Connection* connection, const char* url, const char* method,
                                   const char* data, size_t* size, void** memory) {
  if (!*memory) {
    const auto exchange = std::make_shared<Exchange>(connection);
    *memory = new ExchangePtr(exchange);
    {
      const std::lock_guard lock(mutex);
      if (stopping) return MHD_NO;
      exchanges.insert(exchange);
    }
    return begin(connection, exchange, url, method);
  }
  const ExchangePtr exchange = *static_cast<ExchangePtr*>(*memory);
  if (*size > 0 && exchange->answer) {  // of a body that nobody reads
    *size = 0;
    return MHD_YES;
  }
  if (*size > 0) {
    const auto most = static_cast<size_t>(options.body);
    const size_t room = most - std::min(most, exchange->request.body.size());
    exchange->request.body.append(data, std::min(*size, room));
    *size = 0;
    return MHD_YES;
  }
  return answer(connection, exchange);
}

// What can be refused is refused before a byte of the body is read.
MHD_Result Listener::State::begin(MHD_Connection* connection, const ExchangePtr& exchange,
                                  const char* url, const char* method) {
  HttpRequest& request = exchange->request;
  request.method = method;
  request.path = url;
  MHD_get_connection_values(connection, MHD_HEADER_KIND, add_header, &request);
  MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, add_query, &request);
  const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  request.client = address_of(info ? info->client_addr : nullptr);
  try {
    handlers.admit(request);
    const std::string length = request.header("content-length");
    uint64_t bytes = 0;
    if (!request.header("transfer-encoding").empty())
      throw Refusal(411, "invalid_request_error", "a body needs a Content-Length");
    if (!length.empty()) {
      const char* end = length.data() + length.size();
      const auto [rest, error] = std::from_chars(length.data(), end, bytes);
      if (error == std::errc::invalid_argument || rest != end)
        throw Refusal(400, "invalid_request_error", "Content-Length is no number");
      if (error != std::errc() || bytes > static_cast<uint64_t>(options.body))
        throw Refusal(413, "invalid_request_error",
                      "the body has " + length.substr(0, 20) + " bytes; a request has " +
                          std::to_string(options.body) + " at most");
    }
  } catch (const SlowRefusal& refusal) {
    exchange->answer = slow_reply(refusal);
    exchange->slowed = true;
  } catch (const Refusal& refusal) {
    return refuse(connection, exchange, refusal);
  }
  return MHD_YES;
}

MHD_Result Listener::State::refuse(MHD_Connection* connection, const ExchangePtr& exchange,
                                   const Refusal& refusal) {
  set_reading(connection, false);
  exchange->answer = reply_of(refusal);
  return send(connection, exchange);
}

MHD_Result Listener::State::answer(MHD_Connection* connection, const ExchangePtr& exchange) {
  set_reading(connection, false);
  try {
    if (!exchange->answer) exchange->answer = handlers.handle(exchange->request);
    while (exchange->answer->later) {
      if (exchange->ending()) return MHD_NO;
      std::optional<HttpReply> reply = exchange->answer->later(exchange->waker());
      if (reply)
        exchange->answer = std::move(reply);
      else if (exchange->sleep())
        return MHD_YES;
    }
  } catch (const Refusal& refusal) {
    return refuse(connection, exchange, refusal);
  } catch (const Error& error) {
    return refuse(connection, exchange, refusal_of(error));
  } catch (const std::exception& error) {
    return refuse(connection, exchange, {500, "server_error", error.what()});
  }
  return send(connection, exchange);
}

MHD_Response* Listener::State::response_of(const ExchangePtr& exchange) {
  HttpReply& reply = *exchange->answer;
  if (reply.stream)
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream,
                                             new ExchangePtr(exchange), free_stream);
  if (!reply.file.empty()) {
    const int fd = ::open(reply.file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat found {};
    if (fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode))
      return MHD_create_response_from_fd64(static_cast<uint64_t>(found.st_size), fd);
    if (fd >= 0) ::close(fd);
    reply = reply_of(not_found("the file of this result is gone"));
  }
  return MHD_create_response_from_buffer(reply.body.size(), reply.body.data(),
                                         MHD_RESPMEM_MUST_COPY);
}

MHD_Result Listener::State::send(MHD_Connection* connection, const ExchangePtr& exchange) {
  MHD_Response* response = response_of(exchange);
  if (!response) return MHD_NO;
  const HttpReply& reply = *exchange->answer;
  exchange->status = reply.status;
  MHD_add_response_header(response, "Content-Type", reply.type.c_str());
  MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
  bool policy = false, cache = false;
  for (const auto& [name, value] : reply.headers) {
    MHD_add_response_header(response, name.c_str(), value.c_str());
    policy = policy || name == "Content-Security-Policy";
    cache = cache || name == "Cache-Control";
  }
  if (!policy)
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'none'; frame-ancestors 'none'");
  if (!cache) MHD_add_response_header(response, "Cache-Control", "no-store");
  const MHD_Result result =
      MHD_queue_response(connection, static_cast<unsigned>(reply.status), response);
  MHD_destroy_response(response);
  return result;
}

Listener::Listener(const ServeOptions& options, Handlers handlers)
    : state_(std::make_unique<State>()) {
  state_->options = options;
  state_->handlers = std::move(handlers);
  state_->socket = listen_at(options.host, options.port);
  state_->port = port_of(state_->socket);
  const unsigned files = raise_open_files();
  const unsigned most = std::min(options.connections, files - std::min(files / 2, 128u));
  state_->daemon = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG, 0,
      nullptr, nullptr, on_access, state_.get(), MHD_OPTION_EXTERNAL_LOGGER, say_nothing, nullptr,
      MHD_OPTION_LISTEN_SOCKET, state_->socket, MHD_OPTION_CONNECTION_LIMIT, most,
      MHD_OPTION_CONNECTION_TIMEOUT, options.idle, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      size_t{16384}, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
      state_.get(), MHD_OPTION_NOTIFY_CONNECTION, on_connection, state_.get(), MHD_OPTION_END);
  if (state_->daemon) return;
  ::close(state_->socket);
  throw Error(ErrorCode::memory, std::string("the HTTP listener cannot start: ") +
                                     std::strerror(errno) + "; raise the limits of the system");
}

Listener::~Listener() {
  quiesce();
  std::vector<ExchangePtr> all;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    all.assign(state_->exchanges.begin(), state_->exchanges.end());
  }
  for (const ExchangePtr& exchange : all) exchange->end();  // none may sleep when the daemon stops
  all.clear();
  MHD_stop_daemon(state_->daemon);
}

int Listener::port() const { return state_->port; }

std::string Listener::url() const {
  const std::string& host = state_->options.host;
  const bool brackets = host.find(':') != std::string::npos;
  return "http://" + (brackets ? "[" + host + "]" : host) + ":" + std::to_string(state_->port);
}

unsigned Listener::connections() const {
  const auto* info = MHD_get_daemon_info(state_->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
  return info ? info->num_connections : 0;
}

void Listener::tend() {
  std::vector<ExchangePtr> all;
  {
    const std::lock_guard lock(state_->mutex);
    all.assign(state_->exchanges.begin(), state_->exchanges.end());
    // libmicrohttpd overlooks a client that left behind half a request: the edge was read over.
    for (const int socket : state_->reading)
      if (left(socket)) ::shutdown(socket, SHUT_RDWR);
  }
  const bool beat = ++state_->ticks % state_->options.beat == 0;
  for (const ExchangePtr& exchange : all) {
    if (exchange->abandoned())
      exchange->end();
    else if (exchange->slowed)
      exchange->wake();
    else if (beat)
      exchange->beat();
  }
}

void Listener::quiesce() {
  if (state_->socket < 0) return;
  const int socket = MHD_quiesce_daemon(state_->daemon);
  if (socket >= 0) ::close(socket);
  state_->socket = -1;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

}  // namespace tessera::server
