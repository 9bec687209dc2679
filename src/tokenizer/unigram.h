#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/prefix_table.h"

namespace tessera::tokenizer {

/// Pieces of a unigram language model (Kudo 2018, "Subword Regularization").
struct UnigramPieces {
  std::vector<std::pair<std::string, double>> pieces;  ///< text and log probability, by id
  std::vector<bool> hidden;        ///< pieces that never occur in encoded text; empty: none
  std::vector<bool> user_defined;  ///< pieces that win over all others; empty: none
  int32_t unknown = 0;
  bool byte_fallback = false;     ///< unknown text becomes the pieces <0x00> .. <0xFF>
  bool single_precision = false;  ///< sums in f32 as in SentencePiece; else in f64
};

/// Finds the most probable segmentation into pieces; neighbouring unknown characters become a
/// single token.
class Unigram : public Model {
 public:
  /// Throws Error(model) naming `where` for invalid ids or missing byte pieces.
  Unigram(UnigramPieces pieces, const std::string& where);
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  std::string text_of(int32_t id) const override;
  int64_t size() const override { return static_cast<int64_t>(pieces_.pieces.size()); }

 private:
  struct Node;
  void relax(std::string_view text, size_t at, PrefixTable::Place place,
             std::vector<Node>& nodes) const;

  UnigramPieces pieces_;
  std::vector<int32_t> all_;  // ids by text of the piece
  PrefixTable visible_;
  std::array<int32_t, 256> bytes_{};
  double unknown_score_ = 0, largest_score_ = 0;
};

}  // namespace tessera::tokenizer
