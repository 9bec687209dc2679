#include "server/answers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera::server {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;

constexpr size_t kSmall = 16384;               // bytes; smaller answers do not count
constexpr uint64_t kSmallFile = 256ULL << 10;  // bytes; smaller files are read instead of kept open

void free_exchange(void* pointer) { delete static_cast<ExchangePtr*>(pointer); }

// Runs on the listener's thread.
ssize_t read_stream(void* from, uint64_t, char* to, size_t room) {
  static const Text beat = std::make_shared<const std::string>(": \n\n");
  Exchange& exchange = **static_cast<ExchangePtr*>(from);
  while (!exchange.piece) {
    if (exchange.stream_ended) return MHD_CONTENT_READER_END_OF_STREAM;
    if (exchange.ending()) return MHD_CONTENT_READER_END_WITH_ERROR;
    Stream::Piece piece = exchange.answer->stream->next(exchange.waker());
    if (piece.text && !piece.text->empty()) exchange.piece = std::move(piece.text);
    exchange.sent = 0;
    exchange.stream_ended = piece.ended;
    if (!exchange.piece && exchange.take_beat()) exchange.piece = beat;
    if (!exchange.piece && !exchange.stream_ended && exchange.sleep()) return 0;
  }
  const size_t size = std::min(room, exchange.piece->size() - exchange.sent);
  std::copy_n(exchange.piece->data() + exchange.sent, size, to);
  exchange.sent += size;
  if (exchange.sent == exchange.piece->size()) exchange.piece = nullptr;
  return static_cast<ssize_t>(size);
}

[[noreturn]] void refuse(int status, const std::string& subject) {
  throw Refusal(status, "overloaded", subject + " are under way; read those first", "", 1);
}

}  // namespace

void AnswerLimits::admit_file(Exchange& exchange) {
  HttpReply& reply = *exchange.answer;
  exchange.file = ::open(reply.file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat info {};
  if (exchange.file < 0 || fstat(exchange.file, &info) != 0 || !S_ISREG(info.st_mode)) {
    if (exchange.file >= 0) ::close(std::exchange(exchange.file, -1));
    throw not_found("the file of this result is gone");
  }
  exchange.file_bytes = static_cast<uint64_t>(info.st_size);
  if (exchange.file_bytes > kSmallFile) {
    exchange.answer_lease = QuotaLease(files_, exchange.request.client, 1);
    if (!exchange.answer_lease) refuse(503, "too many files");
    return;
  }
  reply.body.resize(exchange.file_bytes);
  const ssize_t count = ::read(exchange.file, reply.body.data(), reply.body.size());
  ::close(std::exchange(exchange.file, -1));
  reply.body.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  exchange.file_bytes = 0;
}

void AnswerLimits::admit(Exchange& exchange) {
  const HttpReply& reply = *exchange.answer;
  if (reply.stream) {
    exchange.answer_lease = QuotaLease(streams_, exchange.request.client, 1);
    if (exchange.answer_lease) return;
    reply.stream->closed(false);
    refuse(429, "too many streams of this client");
  }
  if (!reply.file.empty()) admit_file(exchange);
  if (reply.body.size() <= kSmall) return;
  exchange.answer_lease = QuotaLease(bytes_, exchange.request.client, reply.body.size());
  if (!exchange.answer_lease) refuse(503, "too many large answers");
}

MHD_Response* response_of(const ExchangePtr& exchange) {
  HttpReply& reply = *exchange->answer;
  if (reply.stream)
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream,
                                             new ExchangePtr(exchange), free_exchange);
  if (exchange->file >= 0)
    return MHD_create_response_from_fd64(exchange->file_bytes, std::exchange(exchange->file, -1));
  // The response points into the exchange, so the exchange lives until the answer is sent.
  return MHD_create_response_from_buffer_with_free_callback_cls(
      reply.body.size(), reply.body.data(), free_exchange, new ExchangePtr(exchange));
}

void add_headers(MHD_Response& response, const HttpReply& reply, bool closes) {
  const auto add = [&](const char* name, const std::string& value) {
    MHD_add_response_header(&response, name, value.c_str());
  };
  add("Content-Type", reply.type);
  add("X-Content-Type-Options", "nosniff");
  add("Cross-Origin-Resource-Policy", "same-origin");
  add("Cross-Origin-Opener-Policy", "same-origin");
  if (closes) add("Connection", "close");
  bool policy = false, cache = false;
  for (const auto& [name, value] : reply.headers) {
    add(name.c_str(), value);
    policy = policy || name == "Content-Security-Policy";
    cache = cache || name == "Cache-Control";
  }
  if (!policy) add("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
  if (!cache) add("Cache-Control", "no-store");
}

}  // namespace tessera::server
