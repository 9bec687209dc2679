// libFuzzer target: any text is a tokenizer.json for some text, or fails with an Error of a single
// line.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tessera/error.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/formats.h"

namespace {

using namespace tessera;
using namespace tessera::tokenizer;

const char* const kTexts[] = {"", "a b  <s>cab\n",
                              "\xc3\xa9\xe2\x96\x81\xf0\x9f\x98\x80 1 it's </s>x"};

template <class F>
void attempt(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    const std::string message = error.what();
    if (error.code() != ErrorCode::model && error.code() != ErrorCode::usage) std::abort();
    if (message.find('\n') != std::string::npos || message.size() > 1000) std::abort();
  }
}

void read_as_language_model(const base::Json& json) {
  const ByteLevelBpe bpe(json, "fuzz");
  for (const char* text : kTexts)
    for (const int32_t id : bpe.encode(text)) {
      if (id < 0 || id >= bpe.size()) std::abort();
      bpe.bytes_of(id, false);
    }
}

void read_as_text_encoder(const base::Json& json, bool t5) {
  TokenizerParts parts = t5 ? parts_of_t5_json(json, "fuzz") : parts_of_json(json, "fuzz");
  read_added_tokens(json, "fuzz", parts);
  parts.padding = 0;
  const Tokenizer tokenizer(std::move(parts), "fuzz");
  for (const char* text : kTexts)
    if (tokenizer.encode_padded(text, 77).ids.size() != 77) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attempt([&] {
    const base::Json json =
        base::parse_json(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    attempt([&] { read_as_language_model(json); });
    attempt([&] { read_as_text_encoder(json, false); });
    attempt([&] { read_as_text_encoder(json, true); });
  });
  return 0;
}
