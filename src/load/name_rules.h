#pragma once

#include <cstdint>
#include <vector>

namespace tessera::load {

/// How a tensor of a file lies, seen from the model: as it is; with the halves of its rows swapped
/// (scale and shift); as a filter of one pixel that is a matrix; as matrices [experts, n, k].
enum class Layout : uint8_t { same, halves_swapped, pixel, experts };

/// One line of a table: a name in the file, and the tensors of the model that its rows are, one
/// below the other. Names are compared word by word, between dots. In both a word stands for
///   N, M  a number,
///   T     any word,
///   L     a number, the largest one at this place in the file,
///   R     a number of the model, counted in the file from the other end,
///   E     a number of the model, of a matrix that the file has in a tensor of experts,
///   *     the last word, whatever it is.
/// "-" as a name of the model: rows that nothing reads.
struct NameRule {
  const char* file;
  std::vector<const char*> model;
  Layout layout = Layout::same;
  std::vector<int> shares = {};  ///< of the rows; empty: equal ones
};

/// How files of other makers name the tensors of a family, as data. A name without a rule is the
/// model's own.
struct NameTable {
  const char* family;                      ///< for messages
  std::vector<const char*> types;          ///< class names of the components that it is for
  std::vector<const char*> architectures;  ///< `general.architecture` of GGUF; empty: any
  std::vector<const char*> marks;          ///< names, one of which tells such a file
  std::vector<const char*> unread;         ///< names, or beginnings with '*', that nothing reads
  std::vector<NameRule> rules;             ///< read from top to bottom
};

}  // namespace tessera::load
