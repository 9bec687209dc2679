#pragma once

#include <cstdint>
#include <vector>

namespace tessera::load {

/// Layout of a file tensor relative to the model: the same; with swapped row halves (scale and
/// shift); a 1x1 convolution filter used as a matrix; or stacked matrices [experts, n, k].
enum class Layout : uint8_t { same, halves_swapped, pixel, experts };

/// A line of a table: a name in the file, and the tensors of the model made from its rows, top to
/// bottom. Names are compared word by word, split at dots. In both names a word stands for
///   N, M  a number,
///   T     any word,
///   L     a number, the largest at this position in the file,
///   R     a number of the model, counted in the file from the other end,
///   E     a number of the model, for a matrix inside the file's tensor of stacked experts,
///   *     the last word.
/// "-" as a name of the model marks unused rows.
struct NameRule {
  const char* file;
  std::vector<const char*> model;
  Layout layout = Layout::same;
  std::vector<int> shares = {};  ///< shares of the rows; empty: equal shares
};

/// Tensor names of a model family in files of other sources, as data. Names without a rule are the
/// model's own.
struct NameTable {
  const char* family;                      ///< for messages
  std::vector<const char*> types;          ///< class names of the components
  std::vector<const char*> architectures;  ///< `general.architecture` of GGUF; empty: any
  std::vector<const char*> marks;          ///< any of these names identifies such a file
  std::vector<const char*> unread;         ///< unused names, or prefixes with '*'
  std::vector<NameRule> rules;             ///< applied from top to bottom
};

}  // namespace tessera::load
