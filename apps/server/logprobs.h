#pragma once

#include "server/json.h"

namespace tessera::server {

/// The log probabilities of an answer's tokens up to a stop text, in OpenAI's form of chats or of
/// completions; null where the request asks for none. `completion`: an answer of a report. The
/// `bytes` of all tokens are the answer; a token that is a part of a character is named by them.
Json logprobs_of(const Json& completion, bool chat);

}  // namespace tessera::server
