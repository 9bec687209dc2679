#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "tessera/error.h"

namespace tessera::cluster {

/// What ranks that are processes must have in common, so that together they compute what one would:
/// a name and a value each, long values as digests.
class Terms {
 public:
  /// The name under which ranks say which unit computes; they may be told to choose one.
  static constexpr const char* kUnit = "the unit";

  void say(const std::string& what, std::string_view value);
  /// The bytes of a file: its size, its ends, and pieces between.
  void file(const std::string& what, const std::string& path);
  const std::vector<std::pair<std::string, std::string>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, std::string>> items_;
};

/// Compares the terms of all ranks. Throws Error(rank) on each of them, with the first difference
/// and the rank that has it, if they are not the same everywhere; where terms() throws on some
/// ranks, all throw what the lowest of these does, by its name.
void agree(comm::Communicator& world, const std::function<Terms()>& terms);
/// What the ranks throw alike, since they have agreed on it: it gets no rank's name.
class SharedError : public Error {
 public:
  using Error::Error;
  explicit SharedError(const Error& error) : Error(error) {}
};
/// Throws the error of a word, if it is one.
void heed(const tensor::Tensor& word);
/// What a rank of the world throws, as the others hear it: "rank 3, which decodes: ..."; that of
/// rank 0, of a stop and of a lost rank as it is, and what names a rank so already. `does`:
/// "decodes".
Error named(const std::exception& thrown, int rank, const char* does);
/// Of a rank of a group that throws what the others do not, who may wait for it: ends all their
/// waits for this request with that, by its number in the world, and throws it; or what another one
/// failed with before.
[[noreturn]] void end_all(comm::Communicator& ranks, int in_world, const std::exception& thrown,
                          const char* does);
/// Runs a rank's part of a request. Where one of the ranks of the world fails, all end the request
/// at once with what the lowest of these throws, by its name, and the world stays as it was; but a
/// lost rank ends it.
void end_together(comm::Communicator& world,
                  const std::function<void(comm::Communicator& ranks)>& part);

}  // namespace tessera::cluster
