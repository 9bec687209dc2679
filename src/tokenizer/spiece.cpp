#include "tokenizer/spiece.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <unordered_set>

#include "base/fail.h"
#include "base/printable.h"
#include "base/seeded_hash.h"
#include "base/stop.h"
#include "tokenizer/unicode.h"

namespace tessera::tokenizer {
namespace {

constexpr size_t kMostPieces = size_t{1} << 22, kLongestPiece = 4096;

// Iterates over the fields of a protocol buffer message.
class Message {
 public:
  Message(std::string_view bytes, const std::string& where) : rest_(bytes), where_(where) {}

  /// Moves to the next field; false after the last.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    field_ = key >> 3;
    wire_ = static_cast<int>(key & 7);
    switch (wire_) {
      case 0: number_ = varint(); break;
      case 1: bytes_ = take(8); break;
      case 2: bytes_ = take(varint()); break;
      case 5: bytes_ = take(4); break;
      default: damaged(fmt::format("a field of kind {}", wire_));
    }
    require(field_ > 0, ErrorCode::model, "{}: a field of number 0; the file is damaged", where_);
    return true;
  }
  uint64_t field() const { return field_; }
  uint64_t number() const {
    expect(0);
    return number_;
  }
  bool flag() const { return number() != 0; }
  std::string_view bytes() const {
    expect(2);
    return bytes_;
  }
  float real() const {
    expect(5);
    uint32_t word = 0;
    for (size_t i = 0; i < 4; ++i)
      word |= static_cast<uint32_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
    return std::bit_cast<float>(word);
  }
  [[noreturn]] void damaged(const std::string& problem) const {
    fail(ErrorCode::model, "{}: {}; this is no SentencePiece model, or it is damaged", where_,
         problem);
  }

 private:
  void expect(int wire) const {
    if (wire_ != wire) damaged(fmt::format("field {} has kind {}, not {}", field_, wire_, wire));
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (size_t i = 0; i < 10; ++i) {
      if (i >= rest_.size()) damaged("a number is cut short");
      const auto byte = static_cast<unsigned char>(rest_[i]);
      if (i == 9 && byte > 1) damaged("a number has more than 64 bits");
      value |= uint64_t{byte & 0x7fu} << (7 * i);
      if (byte < 0x80) {
        rest_.remove_prefix(i + 1);
        return value;
      }
    }
    damaged("a number has no end");
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size())
      damaged(fmt::format("a field of {} bytes where {} are left", size, rest_.size()));
    const std::string_view field = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return field;
  }

  std::string_view rest_, bytes_;
  const std::string& where_;
  uint64_t field_ = 0, number_ = 0;
  int wire_ = 0;
};

SpieceModel::Piece parse_piece(std::string_view bytes, const std::string& where) {
  SpieceModel::Piece piece;
  Message message(bytes, where);
  while (message.next()) {
    if (message.field() == 1) piece.text = message.bytes();
    if (message.field() == 2) piece.score = message.real();
    if (message.field() == 3) {
      const uint64_t type = message.number();
      if (type < 1 || type > 6) message.damaged(fmt::format("a piece of type {}", type));
      piece.type = static_cast<SpieceModel::Type>(type);
    }
  }
  const bool fits = !piece.text.empty() && piece.text.size() <= kLongestPiece &&
                    std::isfinite(piece.score) && repaired(piece.text) == piece.text;
  require(fits, ErrorCode::model,
          "{}: the piece {} of score {}; expected UTF-8 of 1 to {} bytes and a finite score", where,
          base::printable(piece.text), piece.score, kLongestPiece);
  return piece;
}

void parse_trainer(std::string_view bytes, const std::string& where, SpieceModel& model) {
  Message message(bytes, where);
  while (message.next()) {
    if (message.field() == 3) model.model_type = static_cast<int>(message.number() & 0xff);
    if (message.field() == 24) model.treat_whitespace_as_suffix = message.flag();
    if (message.field() == 35) model.byte_fallback = message.flag();
  }
}

void parse_normalizer(std::string_view bytes, const std::string& where, SpieceModel& model) {
  Message message(bytes, where);
  while (message.next()) {
    if (message.field() == 2) model.charsmap = message.bytes();
    if (message.field() == 3) model.add_dummy_prefix = message.flag();
    if (message.field() == 4) model.remove_extra_whitespaces = message.flag();
    if (message.field() == 5) model.escape_whitespaces = message.flag();
  }
}

}  // namespace

SpieceModel parse_spiece(std::string_view bytes, const std::string& where) {
  SpieceModel model;
  Message message(bytes, where);
  while (message.next()) {
    base::check_stop();
    if (message.field() == 1) model.pieces.push_back(parse_piece(message.bytes(), where));
    if (message.field() == 2) parse_trainer(message.bytes(), where, model);
    if (message.field() == 3) parse_normalizer(message.bytes(), where, model);
    require(model.pieces.size() <= kMostPieces, ErrorCode::model,
            "{}: more than {} pieces; expected fewer", where, kMostPieces);
  }
  require(!model.pieces.empty(), ErrorCode::model,
          "{}: no piece at all; this is no SentencePiece model, or it is damaged", where);
  std::unordered_set<std::string_view, base::SeededHash> texts;
  for (const SpieceModel::Piece& piece : model.pieces)
    require(texts.insert(piece.text).second, ErrorCode::model, "{}: the piece {} stands twice",
            where, base::printable(piece.text));
  return model;
}

}  // namespace tessera::tokenizer
