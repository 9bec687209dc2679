// Bodies of the server's requests: read, or refused with a status of the client.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/openai.h"
#include "server/refusal.h"
#include "server/request_reader.h"

using namespace tessera::server;

namespace {

template <class Read>
void refused_at_most(const Read& read) {
  try {
    read();
  } catch (const Refusal& refusal) {
    if (refusal.status() < 400 || refusal.status() >= 500) std::abort();
    (void)text_of(body_of(refusal));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ModelFacts image = [] {
    ModelFacts facts;
    facts.width = facts.height = 128;
    return facts;
  }();
  static const ModelFacts text = [] {
    ModelFacts facts;
    facts.kind = Kind::text;
    return facts;
  }();
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  refused_at_most([&] {
    const Json parsed = parse_body(body);
    refused_at_most([&] { read_request(parsed, image, {}); });
    refused_at_most([&] { read_request(parsed, text, {}); });
    refused_at_most([&] {
      translate_images(parsed, [](const std::string&) -> const ModelFacts& { return image; });
    });
    refused_at_most([&] { translate_completion(parsed); });
    refused_at_most([&] { translate_chat(parsed); });
  });
  return 0;
}
