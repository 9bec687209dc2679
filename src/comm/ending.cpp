#include "comm/ending.h"

#include <algorithm>
#include <string>

namespace tessera::comm {

using tensor::Tensor;

Tensor word_of(const Error* error) {
  const std::string text =
      error ? static_cast<char>(static_cast<int>(error->code())) + std::string(error->what()) : "";
  const Tensor word = Tensor::empty({std::ssize(text)}, tensor::DType::u8);
  std::copy(text.begin(), text.end(), static_cast<char*>(word.raw()));
  return word;
}

std::optional<Error> error_of(const Tensor& word) {
  if (word.elements() == 0) return {};
  const auto* const text = static_cast<const char*>(word.raw());
  return Error(static_cast<ErrorCode>(static_cast<unsigned char>(text[0])),
               std::string(text + 1, static_cast<size_t>(word.elements() - 1)));
}

bool Ending::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (own_ || noticed_) return false;
  own_ = error;
  over_ = true;
  return true;
}

void Ending::hear(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!other_error_) other_error_ = error;
  over_ = true;
}

void Ending::check() {
  if (!over_) return;
  const std::lock_guard lock(mutex_);
  noticed_ = !own_;
  throw Error(own_ ? *own_ : *other_error_);
}

std::optional<Error> Ending::own() const {
  const std::lock_guard lock(mutex_);
  return own_;
}

}  // namespace tessera::comm
