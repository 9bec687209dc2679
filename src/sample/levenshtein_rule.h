#pragma once

#include <memory>

#include "sample/unmasking_policies.h"

namespace tessera::sample {

/// Levenshtein editing (LLaDA2.2 report, section 3.1; the released generate()). Masks are filled by
/// a threshold with a schedule of `steps`; a token is replaced if another token has a confidence
/// above `editing`. A predicted special.remove deletes a position of the block; special.split
/// inserts a mask before the token. The block keeps its length: masks fill up its end, and
/// positions beyond the end are dropped. Added masks raise the number of masks to fill.
///
/// A block ends when a pass finds no mask and changes nothing, or with pass `posts` of the passes
/// in a row without original masks (0: with the pass that fills the last original mask). The final
/// pass fills all masks and edits no length. If a pass would repeat an earlier state of the block,
/// the rule replaces the least sure change by another token (the released program: a random
/// change).
std::unique_ptr<UnmaskingPolicy> levenshtein_rule(const DecodingPolicy& policy,
                                                  const SpecialIds& special);

}  // namespace tessera::sample
