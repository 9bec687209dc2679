#pragma once

#include <string>

namespace tessera::base {

/// A folder that appears whole or not at all: filled under a unique name beside its target, and
/// renamed by commit().
class OutputFolder {
 public:
  /// Throws Error(usage) naming the path and the reason, also if the path exists already.
  explicit OutputFolder(const std::string& path);
  /// Removes all written data unless commit() was called.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// The folder to fill.
  const std::string& beside() const { return beside_; }
  /// After an error nothing is left.
  void commit();

 private:
  void make_beside();
  std::string path_, beside_;  ///< the given path and the temporary folder; "": committed
  int held_ = -1;              ///< beside_, open and locked against sweeps of other runs
};

}  // namespace tessera::base
