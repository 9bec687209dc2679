#include "cluster/agree.h"

#include <algorithm>

#include "base/as_error.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/printable.h"
#include "comm/collectives.h"

namespace tessera::cluster {
namespace {

constexpr size_t kShown = 60;             // longer values appear as digests
constexpr int64_t kPiece = 4096;          // bytes of a file read at once
constexpr int64_t kMostPieces = 64;       // pieces of a file
constexpr int64_t kTermsBytes = 1 << 20;  // above all ranks' terms

std::string digest_of(std::string_view bytes) {
  base::Digest digest;
  digest.add(bytes);
  return digest.text();
}

}  // namespace

void RunFingerprint::say(const std::string& name, std::string_view value) {
  const bool plain =
      std::all_of(value.begin(), value.end(), [](char c) { return c >= 32 && c < 127; });
  items_.emplace_back(
      name, plain && value.size() <= kShown
                ? base::printable(value)
                : fmt::format("{} characters, digest {}", value.size(), digest_of(value)));
}

void RunFingerprint::file(const std::string& name, const std::string& path) {
  const base::InputFile in(path);
  const int64_t size = in.size();
  base::Digest digest;
  std::vector<char> piece(kPiece);
  const int64_t pieces = std::clamp<int64_t>((size + kPiece - 1) / kPiece, 0, kMostPieces);
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t last = std::max<int64_t>(size - kPiece, 0);
    const int64_t at =
        pieces > 1 ? last / (pieces - 1) * i + (i == pieces - 1 ? last % (pieces - 1) : 0) : 0;
    const int64_t bytes = std::min(kPiece, size);
    in.read(at, piece.data(), bytes);
    digest.add({piece.data(), static_cast<size_t>(bytes)});
  }
  items_.emplace_back(name, fmt::format("{} bytes, digest {}", size, digest.text()));
}

void require_same(comm::Communicator& world, const std::function<RunFingerprint()>& terms) {
  using Items = std::vector<std::pair<std::string, std::string>>;
  tensor::Tensor own_message;
  try {
    const std::string text = base::Json(terms().items()).dump();
    own_message = tensor::Tensor::empty({std::ssize(text)}, tensor::DType::u8);
    std::copy(text.begin(), text.end(), static_cast<char*>(own_message.raw()));
  } catch (const std::exception& e) {  // no error code equals the bracket before terms
    const Error error = named(e, world.rank(), "compares the run");
    own_message = comm::word_of(&error);
  }
  const auto messages = comm::all_gather(world, own_message, {"agree", -1}).wait();
  for (const tensor::Tensor& word : messages)
    if (word.elements() > 0 && *static_cast<const char*>(word.raw()) != '[') throw_if_error(word);
  std::vector<Items> all_items;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    require(messages[rank].bytes() <= kTermsBytes, ErrorCode::rank,
            "rank {} says {} bytes of terms", rank, messages[rank].bytes());
    const std::string_view message(static_cast<const char*>(messages[rank].raw()),
                                   static_cast<size_t>(messages[rank].bytes()));
    all_items.push_back(
        base::parse_json(message, fmt::format("terms of rank {}", rank)).get<Items>());
  }
  for (size_t rank = 1; rank < all_items.size(); ++rank) {
    const Items &first = all_items.front(), &other = all_items[rank];
    const auto [a, b] = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
    if (a == first.end() && b == other.end()) continue;
    const bool same_name = a != first.end() && b != other.end() && a->first == b->first;
    const std::string& name = a != first.end() ? a->first : b->first;
    fail(ErrorCode::rank, "ranks do not run the same: {} of rank {} is {}, of rank 0 {}; {}", name,
         rank, same_name ? b->second : "another thing", a != first.end() ? a->second : "none",
         name == RunFingerprint::kUnit ? "choose one for all: TESSERA_UNIT=fma"
                                       : "start all ranks with one program, model and request");
  }
}

void throw_if_error(const tensor::Tensor& word) {
  if (const auto error = comm::error_of(word)) throw Error(*error);
}

namespace {

// "rank 3, which decodes: ..."
bool names_a_rank(std::string_view text) {
  constexpr std::string_view kRank = "rank ";
  if (!text.starts_with(kRank)) return false;
  text.remove_prefix(kRank.size());
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return digits > 0 && text.substr(digits).starts_with(", which ");
}

// Other exceptions come from a caller's callback, and stop the ranks.
Error told_to_others(const std::exception& e, int rank) {
  const Error error = named(e, rank, "computes");
  const bool foreign = error.code() == ErrorCode::rank && !dynamic_cast<const Error*>(&e);
  return foreign ? Error(ErrorCode::cancelled, fmt::format("rank {} stopped: {}", rank, e.what()))
                 : error;
}

// Outside reports: never part of a prediction.
std::vector<tensor::Tensor> words_of_all(comm::Communicator& world, const tensor::Tensor& word) {
  constexpr comm::Tag kTag = comm::kControl;
  for (int to = 0; to < world.size(); ++to)
    if (to != world.rank()) world.post(to, word, kTag);
  std::vector<tensor::Tensor> words;
  for (int from = 0; from < world.size(); ++from)
    words.push_back(from == world.rank() ? word : world.receive(from, kTag).wait());
  return words;
}

}  // namespace

Error named(const std::exception& exception, int rank, const char* action) {
  Error error = base::as_error(exception);
  const bool all_are_told = error.code() == ErrorCode::rank || error.code() == ErrorCode::cancelled;
  if (rank == 0 || all_are_told || names_a_rank(error.what())) return error;
  return {error.code(), fmt::format("rank {}, which {}: {}", rank, action, error.what())};
}

void end_all(comm::Communicator& ranks, int in_world, const std::exception& exception,
             const char* action) {
  ranks.check();
  const Error error = named(exception, in_world, action);
  if (error.code() != ErrorCode::cancelled) ranks.fail_all(error);
  throw Error(error);
}

void run_collectively(comm::Communicator& world,
                      const std::function<void(comm::Communicator& ranks)>& part) {
  auto ranks = world.request();
  std::exception_ptr exception;
  bool shared = false;
  try {
    part(*ranks);
  } catch (const std::exception& e) {
    world.check();
    shared = dynamic_cast<const SharedError*>(&e) != nullptr;
    const Error error = shared ? base::as_error(e) : told_to_others(e, world.rank());
    if (error.code() == ErrorCode::rank) throw;
    ranks->fail_all(error);
    exception = std::current_exception();
  }
  std::optional<Error> own = ranks->failed();
  if (own && !shared) own = named(*own, world.rank(), "computes");
  ranks = nullptr;  // unread messages would hold up the words behind them
  const Error* const own_error = own ? &*own : nullptr;
  const std::vector<tensor::Tensor> words = words_of_all(world, comm::word_of(own_error));
  if (own && world.rank() == 0 && exception)
    std::rethrow_exception(exception);  // including a callback's
  for (const tensor::Tensor& word : words) throw_if_error(word);
  if (exception) std::rethrow_exception(exception);
}

}  // namespace tessera::cluster
