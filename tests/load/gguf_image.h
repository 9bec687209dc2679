#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::load {

/// Writes the bytes of a GGUF file, tensor by tensor; sizes are outermost first, as everywhere
/// here.
class GgufImage {
 public:
  explicit GgufImage(uint32_t alignment = 32) : alignment_(alignment) {
    if (alignment != 32) {
      key("general.alignment", 4);
      number(keys_, alignment);
    }
  }
  GgufImage& architecture(const std::string& name) {
    key("general.architecture", 8);
    text(keys_, name);
    return *this;
  }
  /// A key with a value of any type, given as bytes.
  GgufImage& raw_key(const std::string& name, uint32_t type, const std::string& value) {
    key(name, type);
    keys_ += value;
    return *this;
  }
  template <class T>
  GgufImage& value(const std::string& name, const T& one) {
    key(name, type_of<T>());
    put(one);
    return *this;
  }
  template <class T>
  GgufImage& list(const std::string& name, const std::vector<T>& values) {
    key(name, 9);
    number(keys_, type_of<T>());
    number(keys_, uint64_t{values.size()});
    for (size_t i = 0; i < values.size(); ++i) put(T(values[i]));
    return *this;
  }
  GgufImage& sizes_before(const std::string& tensor, const std::vector<int32_t>& sizes) {
    key("comfy.gguf.orig_shape." + tensor, 9);
    number(keys_, uint32_t{5});
    number(keys_, uint64_t{sizes.size()});
    for (const int32_t size : sizes) number(keys_, size);
    return *this;
  }
  GgufImage& tensor(const std::string& name, std::vector<int64_t> sizes, uint32_t type,
                    const std::string& bytes) {
    ++tensors_;
    text(infos_, name);
    number(infos_, static_cast<uint32_t>(sizes.size()));
    for (size_t i = sizes.size(); i-- > 0;) number(infos_, sizes[i]);
    number(infos_, type);
    number(infos_, uint64_t{data_.size()});
    data_ += bytes;
    pad(data_);
    return *this;
  }
  GgufImage& floats(const std::string& name, std::vector<int64_t> sizes,
                    const std::vector<float>& values) {
    return tensor(name, std::move(sizes), 0,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  std::string bytes() const {
    std::string all = "GGUF";
    number(all, uint32_t{3});
    number(all, tensors_);
    number(all, count_);
    all += keys_ + infos_;
    pad(all);
    return all + data_;
  }

  template <class T>
  static void number(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void text(std::string& to, const std::string& value) {
    number(to, uint64_t{value.size()});
    to += value;
  }

 private:
  template <class T>
  static constexpr uint32_t type_of() {
    if constexpr (std::is_same_v<T, uint32_t>) return 4;
    if constexpr (std::is_same_v<T, int32_t>) return 5;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, std::string>) return 8;
  }
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, std::string>)
      text(keys_, value);
    else
      number(keys_, value);
  }
  void key(const std::string& name, uint32_t type) {
    ++count_;
    text(keys_, name);
    number(keys_, type);
  }
  void pad(std::string& bytes) const {
    bytes.resize((bytes.size() + alignment_ - 1) / alignment_ * alignment_);
  }

  uint32_t alignment_;
  uint64_t tensors_ = 0, count_ = 0;
  std::string keys_, infos_, data_;
};

}  // namespace tessera::load
