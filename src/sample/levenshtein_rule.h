#pragma once

#include <memory>

#include "sample/unmasking_policies.h"

namespace tessera::sample {

/// Levenshtein editing (LLaDA2.2 report, section 3.1; the released generate()). Masks are filled as
/// by a threshold with a schedule of `steps`, and tokens replaced that another beats with
/// confidence above `editing`. What is said may be special.remove, which takes a position out of
/// the block, or special.split, which puts a mask before what stood there; the block keeps its
/// length: masks fill it up, and what no longer fits falls off its end. As many more masks are
/// filled.
///
/// A block ends when a pass finds no mask and changes nothing, or with the pass number `posts` of
/// those in a row that found none of its first masks (0: with the one that fills the last of
/// these): that one fills all masks and edits no length. A pass that would leave the block as it
/// was after an earlier one says something else at its least sure change (the released program: at
/// one drawn at random).
std::unique_ptr<UnmaskingPolicy> levenshtein_rule(const DecodingPolicy& policy,
                                                  const SpecialIds& special);

}  // namespace tessera::sample
