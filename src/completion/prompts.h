#pragma once

#include <vector>

#include "runtime/language.h"
#include "sample/decode.h"
#include "tessera/complete.h"

namespace tessera::completion {

/// The prompts of a request as ids, each repeated for the requested number of answers, and checked
/// against vocabulary and context. Throws Error(usage).
std::vector<sample::TokenPrompt> prompts_of(const CompleteRequest& request,
                                            const runtime::Language& language,
                                            const sample::DecodingPolicy& policy);

}  // namespace tessera::completion
