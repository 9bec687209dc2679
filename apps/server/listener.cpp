#include "server/listener.h"

#include <malloc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "server/answers.h"
#include "server/connections.h"
#include "server/exchange.h"
#include "server/field_names.h"
#include "server/header_reader.h"
#include "server/routes.h"
#include "server/sockets.h"
#include "server/work_pool.h"
#include "tessera/error.h"

namespace tessera::server {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kThreads = 4;          // threads of the pool
constexpr unsigned kOwnFiles = 128;  // files reserved for models, the store and answers
constexpr size_t kBodies = size_t{64} << 20, kAnswers = size_t{256} << 20;
constexpr size_t kStreams = 4096, kStreamsEach = 256;
constexpr size_t kTrim = size_t{8} << 20;  // freed bytes after which memory returns to the system
constexpr size_t kConnection = 16384;      // bytes of libmicrohttpd for each connection

int socket_of(MHD_Connection* connection) {
  const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info ? info->connect_fd : -1;
}

const sockaddr* address_of(MHD_Connection* connection) {
  const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  return info ? info->client_addr : nullptr;
}

HttpReply reply_of_this_exception() {
  try {
    throw;
  } catch (const Refusal& refusal) {
    return reply_of(refusal);
  } catch (const Error& error) {
    return reply_of(refusal_of(error));
  } catch (const std::exception& error) {
    return reply_of({500, "server_error", error.what()});
  }
}

}  // namespace

struct Listener::State {
  State(const ServeOptions& serve_options, Handlers request_handlers, unsigned connections)
      : options(serve_options),
        handlers(std::move(request_handlers)),
        open(connections),
        limits(kAnswers, kStreams, kStreamsEach, kOwnFiles / 2),
        bodies(kBodies, kBodies / 4),
        pool(kThreads) {}

  const ServeOptions options;
  const Handlers handlers;
  MHD_Daemon* daemon = nullptr;
  int socket = -1, port = 0;
  unsigned ticks = 0;
  Connections open;
  AnswerLimits limits;
  Quota bodies;  // bytes of requests being read or processed
  std::atomic<size_t> freed = 0;
  std::mutex mutex;
  std::set<ExchangePtr> exchanges;
  bool stopping = false;
  WorkPool pool;

  MHD_Result access(MHD_Connection* connection, const ExchangePtr& exchange, const char* url,
                    const char* method, const char* version, const char* data, size_t* size);
  MHD_Result begin(MHD_Connection* connection, const ExchangePtr& exchange, const char* version);
  void announce(MHD_Connection* connection, const ExchangePtr& exchange);
  MHD_Result answer(MHD_Connection* connection, const ExchangePtr& exchange);
  MHD_Result send(MHD_Connection* connection, const ExchangePtr& exchange);
  void work(const ExchangePtr& exchange);
  void make_answer(Exchange& exchange);
  void leave(const ExchangePtr& exchange);
  void completed(const ExchangePtr& exchange, bool whole);
  Connections::Time after(unsigned limit) const { return steady_clock::now() + seconds(limit); }
};

namespace {

MHD_Result on_accept(void* state, const sockaddr* address, socklen_t) {
  return static_cast<Listener::State*>(state)->open.may_open(address) ? MHD_YES : MHD_NO;
}

void on_connection(void* state, MHD_Connection* connection, void**,
                   MHD_ConnectionNotificationCode code) {
  auto& listener = *static_cast<Listener::State*>(state);
  const int socket = socket_of(connection);
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    listener.open.opened(socket, address_of(connection));
    listener.open.expect(socket, listener.after(listener.options.idle));
  } else {
    listener.open.closed(socket);
    listener.freed += kConnection;
  }
}

// Called after the first line of a request.
void* on_target(void* state, const char* target, MHD_Connection* connection) {
  auto& listener = *static_cast<Listener::State*>(state);
  listener.open.expect(socket_of(connection), listener.after(listener.options.head));
  try {
    return new ExchangePtr(std::make_shared<Exchange>(connection, target ? target : ""));
  } catch (const std::exception&) {  // the connection ends with this request
    return nullptr;
  }
}

MHD_Result on_access(void* state, MHD_Connection* connection, const char* url, const char* method,
                     const char* version, const char* data, size_t* size, void** memory) {
  const auto* pointer = static_cast<const ExchangePtr*>(*memory);
  if (!pointer) return MHD_NO;
  const ExchangePtr exchange = *pointer;
  try {
    return static_cast<Listener::State*>(state)->access(connection, exchange, url, method, version,
                                                        data, size);
  } catch (const std::exception&) {  // out of memory: only this connection ends
    return MHD_NO;
  }
}

void on_completed(void* state, MHD_Connection* connection, void** memory,
                  MHD_RequestTerminationCode code) {
  auto* pointer = static_cast<ExchangePtr*>(*memory);
  *memory = nullptr;
  auto& listener = *static_cast<Listener::State*>(state);
  listener.open.expect(socket_of(connection), listener.after(listener.options.idle));
  if (!pointer) return;
  const ExchangePtr exchange = *pointer;
  delete pointer;
  listener.completed(exchange, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

void say_nothing(void*, const char*, va_list) {}

}  // namespace

void Listener::State::completed(const ExchangePtr& exchange, bool whole) {
  const bool worked_on = exchange->forget();
  {
    const std::lock_guard lock(mutex);
    exchanges.erase(exchange);
  }
  if (exchange->head_read) {
    using Seconds = std::chrono::duration<double>;
    const double took = Seconds(steady_clock::now() - exchange->since).count();
    const HttpRequest& request = exchange->request;
    handlers.log({request.method, request.path, request.client, request.address, exchange->status,
                  took, whole});
  }
  if (!worked_on) leave(exchange);
}

// The client left or has everything. Cancelling the job may need the store, so the pool does it.
void Listener::State::leave(const ExchangePtr& exchange) {
  if (!exchange->answer) return;
  HttpReply& reply = *exchange->answer;
  if (reply.body.size() > kConnection) freed += reply.body.size();
  if ((reply.later && reply.on_disconnect) || reply.stream)
    pool.add(exchange->request.client, [exchange] {
      const HttpReply& answer = *exchange->answer;
      if (answer.stream)
        answer.stream->closed(exchange->stream_ended && !exchange->piece);
      else
        answer.on_disconnect();
    });
}

MHD_Result Listener::State::access(MHD_Connection* connection, const ExchangePtr& exchange,
                                   const char* url, const char* method, const char* version,
                                   const char* data, size_t* size) {
  if (!exchange->head_read) {
    {
      const std::lock_guard lock(mutex);
      if (stopping) return MHD_NO;
      exchanges.insert(exchange);
    }
    exchange->head_read = true;
    exchange->request.method = method;
    exchange->request.path = url;
    return begin(connection, exchange, version);
  }
  if (*size == 0) return answer(connection, exchange);
  if (exchange->answer) {  // the body is not read
    *size = 0;
    return MHD_YES;
  }
  std::string& body = exchange->request.body;
  const auto most = static_cast<size_t>(most_body(options, exchange->request.path));
  if (*size > most - std::min(body.size(), most))
    exchange->too_long = true;
  else
    body.append(data, *size);
  *size = 0;
  return MHD_YES;
}

// Refuses a request, if possible, before reading the body.
MHD_Result Listener::State::begin(MHD_Connection* connection, const ExchangePtr& exchange,
                                  const char* version) {
  HttpRequest& request = exchange->request;
  request.address = server::address_of(address_of(connection));
  try {
    exchange->closes = true;  // another parser might read this head differently
    if (!is_token(request.method) || !exchange->plain_target)
      throw Refusal(400, "invalid_request_error", "the method or the path has other characters");
    read_head(connection, request.method, exchange->target, version, request);
    announce(connection, exchange);
  } catch (const SlowRefusal& refusal) {
    exchange->answer = slow_reply(refusal);
    exchange->slowed = true;
    open.expect(socket_of(connection), after(options.request));
    return MHD_YES;
  } catch (...) {
    exchange->answer = reply_of_this_exception();
  }
  return exchange->answer ? send(connection, exchange) : MHD_YES;
}

void Listener::State::announce(MHD_Connection* connection, const ExchangePtr& exchange) {
  HttpRequest& request = exchange->request;
  handlers.admit(request);  // an unknown address is reported before the body is judged
  const uint64_t bytes =
      body_bytes(request, static_cast<uint64_t>(most_body(options, request.path)));
  exchange->closes = bytes > 0;
  if (bytes == 0) return;
  if (request.method == "GET" || request.method == "HEAD" || request.method == "DELETE")
    throw Refusal(400, "invalid_request_error", "a " + request.method + " has no body here");
  if (request.method != "POST") {  // no body needs to be read
    exchange->answer = handlers.handle(request);
    return;
  }
  exchange->body = QuotaLease(bodies, request.client, bytes);
  if (!exchange->body)
    throw Refusal(503, "overloaded", "too many requests are being read; ask again in a moment", "",
                  1);
  exchange->closes = false;
  open.expect(socket_of(connection), after(options.request));
}

MHD_Result Listener::State::answer(MHD_Connection* connection, const ExchangePtr& exchange) {
  open.rest(socket_of(connection));
  if (exchange->too_long) {
    exchange->answer = reply_of({413, "invalid_request_error", "the body is too long"});
    exchange->closes = true;
    return send(connection, exchange);
  }
  if (handlers.quick(exchange->request)) {
    make_answer(*exchange);
    return send(connection, exchange);
  }
  do {
    if (exchange->ending()) return MHD_NO;  // after end() nobody would end this work
    const Exchange::Work before = exchange->begin_work();
    if (before == Exchange::Work::done) return send(connection, exchange);
    if (before == Exchange::Work::none)
      pool.add(exchange->request.client, [this, exchange] { work(exchange); });
  } while (!exchange->sleep());
  return MHD_YES;
}

// Runs on the pool, or on the listener thread for quick requests.
void Listener::State::make_answer(Exchange& exchange) {
  try {
    if (!exchange.answer) {
      exchange.answer = handlers.handle(exchange.request);
      freed += exchange.request.body.size();
      exchange.request.body = {};
      exchange.body.release();
    }
    while (exchange.answer->later) {
      std::optional<HttpReply> reply = exchange.answer->later(exchange.waker());
      if (!reply) return;
      exchange.answer = std::move(reply);
    }
    limits.admit(exchange);
  } catch (...) {
    exchange.answer = reply_of_this_exception();
  }
}

void Listener::State::work(const ExchangePtr& exchange) {
  while (true) {
    make_answer(*exchange);
    const Exchange::Work now = exchange->end_work(!exchange->answer->later);
    if (now == Exchange::Work::none) leave(exchange);
    if (now != Exchange::Work::again) return;
  }
}

MHD_Result Listener::State::send(MHD_Connection* connection, const ExchangePtr& exchange) {
  const HttpReply& reply = *exchange->answer;
  if (!reply.stream) {
    const uint64_t bytes = std::max<uint64_t>(exchange->file_bytes, reply.body.size());
    const auto slow = static_cast<unsigned>(bytes >> 14);  // at a rate of 16 KiB a second
    open.serve(socket_of(connection), after(options.request + slow));
  }
  MHD_Response* response = response_of(exchange);
  if (!response) return MHD_NO;
  exchange->status = reply.status;
  add_headers(*response, reply, exchange->closes);
  const MHD_Result result =
      MHD_queue_response(connection, static_cast<unsigned>(reply.status), response);
  MHD_destroy_response(response);
  return result;
}

Listener::Listener(const ServeOptions& options, Handlers handlers) {
  const int socket = listen_at(options.host, options.port);
  const unsigned files = raise_open_files();
  const unsigned most = std::min(options.connections, files - std::min(files / 2, kOwnFiles));
  state_ = std::make_unique<State>(options, std::move(handlers), most);
  state_->socket = socket;
  state_->port = port_of(socket);
  State* const state = state_.get();
  state_->daemon = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG, 0,
      on_accept, state, on_access, state, MHD_OPTION_EXTERNAL_LOGGER, say_nothing, nullptr,
      MHD_OPTION_LISTEN_SOCKET, socket, MHD_OPTION_CONNECTION_LIMIT, most,
      MHD_OPTION_CONNECTION_TIMEOUT, options.idle, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnection,
#if MHD_VERSION >= 0x01000000
      MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1,
#else
      MHD_OPTION_STRICT_FOR_CLIENT, 1,
#endif
      MHD_OPTION_URI_LOG_CALLBACK, on_target, state, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
      state, MHD_OPTION_NOTIFY_CONNECTION, on_connection, state, MHD_OPTION_END);
  if (state_->daemon) return;
  ::close(socket);
  throw Error(ErrorCode::memory, std::string("the HTTP listener cannot start: ") +
                                     std::strerror(errno) + "; raise the limits of the system");
}

Listener::~Listener() {
  quiesce();
  state_->pool.close();
  std::vector<ExchangePtr> exchanges;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    exchanges.assign(state_->exchanges.begin(), state_->exchanges.end());
  }
  for (const ExchangePtr& exchange : exchanges) exchange->end();  // unblocks the daemon's stop
  exchanges.clear();
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
  state_->open.end_late(steady_clock::now());
  std::vector<ExchangePtr> exchanges;
  {
    const std::lock_guard lock(state_->mutex);
    exchanges.assign(state_->exchanges.begin(), state_->exchanges.end());
  }
  const bool beat = ++state_->ticks % state_->options.beat == 0;
  for (const ExchangePtr& exchange : exchanges) {
    if (exchange->abandoned())
      exchange->end();
    else if (exchange->slowed)
      exchange->wake();
    else if (beat)
      exchange->beat();
  }
  // Returns memory freed by many clients to the system.
  if (state_->ticks % 4 == 0 && state_->freed > kTrim) {
    state_->freed = 0;
    malloc_trim(0);
  }
}

void Listener::quiesce() {
  if (state_->socket < 0) return;
  const int socket = MHD_quiesce_daemon(state_->daemon);
  if (socket >= 0) ::close(socket);
  state_->socket = -1;
}

}  // namespace tessera::server
