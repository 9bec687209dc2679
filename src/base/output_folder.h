#pragma once

#include <string>

namespace tessera::base {

/// A folder that appears whole or not at all: made beside its target under a name of its own,
/// renamed by commit().
class OutputFolder {
 public:
  /// Throws Error(usage) naming the path and the reason; also where something stands already.
  explicit OutputFolder(const std::string& path);
  /// Removes all that was written unless commit() came.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Where it is filled.
  const std::string& beside() const { return beside_; }
  /// With an error nothing stays behind.
  void commit();

 private:
  void make_beside();
  std::string path_, beside_;  ///< as given, and where it is filled; "": it is done
  int held_ = -1;              ///< beside_, open and locked, so that no other run sweeps it
};

}  // namespace tessera::base
