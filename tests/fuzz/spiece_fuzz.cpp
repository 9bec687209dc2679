// libFuzzer target: any bytes are a SentencePiece model, or fail with an Error(model) of a single
// line.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tessera/error.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/spiece.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::tokenizer;
  try {
    const SpieceModel model = parse_spiece({reinterpret_cast<const char*>(data), size}, "fuzz");
    const Charsmap map(model.charsmap, "fuzz");
    for (const SpieceModel::Piece& piece : model.pieces) map.apply(piece.text);
  } catch (const tessera::Error& error) {
    if (error.code() != tessera::ErrorCode::model) std::abort();
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
