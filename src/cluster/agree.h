#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "tessera/error.h"

namespace tessera::cluster {

/// Settings that processes must have in common to compute the result of a single rank: names and
/// values, long values as digests.
class RunFingerprint {
 public:
  /// The name of the computing unit; ranks may be told to choose one.
  static constexpr const char* kUnit = "the unit";

  void say(const std::string& name, std::string_view value);
  /// A file's bytes: size, ends, and pieces between.
  void file(const std::string& name, const std::string& path);
  const std::vector<std::pair<std::string, std::string>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, std::string>> items_;
};

/// Compares the terms of all ranks. For different terms throws Error(rank) on each of them, with
/// the first difference and its rank; if terms() throws on some ranks, all throw the error of the
/// lowest, with its number.
void require_same(comm::Communicator& world, const std::function<RunFingerprint()>& terms);
/// An error that all ranks throw by agreement, without a rank's number.
class SharedError : public Error {
 public:
  using Error::Error;
  explicit SharedError(const Error& error) : Error(error) {}
};
/// Throws the error of a message, if any.
void throw_if_error(const tensor::Tensor& word);
/// A rank's error as thrown on the other ranks: "rank 3, which decodes: ...";
/// unchanged for rank 0, a stop, a lost rank, and errors with a rank's number. `action`:
/// "decodes".
Error named(const std::exception& exception, int rank, const char* action);
/// For a rank of a group with an error of its own, while others may wait: ends all their waits for
/// this request with the error, by its number in the world, and throws it, or an earlier error of
/// another rank.
[[noreturn]] void end_all(comm::Communicator& ranks, int in_world, const std::exception& exception,
                          const char* action);
/// Runs a rank's part of a request. When a rank of the world fails, all end the request at once
/// with the error of the lowest, by number, and the world stays usable, except after a lost
/// rank.
void run_collectively(comm::Communicator& world,
                      const std::function<void(comm::Communicator& ranks)>& part);

}  // namespace tessera::cluster
