#pragma once

#include "server/json.h"

namespace tessera::server {

/// Log probabilities of an answer's tokens up to a stop text, in the chat or completion format of
/// OpenAI; null if the request asks for none. `completion`: an answer of a report. The concatenated
/// `bytes` of all tokens are the answer; a token inside a character is named by its bytes.
Json logprobs_of(const Json& completion, bool chat);

}  // namespace tessera::server
