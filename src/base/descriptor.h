#pragma once

#include <utility>

namespace tessera::base {

/// Returns the descriptor, or a copy above the standard streams in its place. If a program was
/// started without standard streams, its messages would otherwise go into a file with their number.
/// -1 stays -1; -1 with errno: the copy failed and the descriptor was closed.
int above_streams(int descriptor);

/// Owns an open file, above the standard streams; -1: none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(above_streams(number)) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  operator int() const { return number_; }

 private:
  int number_ = -1;
};

}  // namespace tessera::base
