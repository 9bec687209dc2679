#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>

#include "server/json.h"

namespace tessera::server {

/// Throws Error(model): the database is damaged or belongs to another program.
[[noreturn]] void fail_damaged(sqlite3* database, const std::string& reason);

/// An SQL statement: bound, stepped, and finalised by the destructor. Throws Refusal(507) on a full
/// disk, Error(model) for a damaged database.
class Statement {
 public:
  Statement(sqlite3* database, const std::string& sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(const std::string& text);
  Statement& bind(int64_t value);
  Statement& bind(double value);
  Statement& bind(const Json& value) { return bind(text_of(value)); }
  /// True if there is a row.
  bool step();
  std::string text(int column) const;
  int64_t whole(int column) const;
  double number(int column) const;
  Json json(int column) const;
  [[noreturn]] void fail(const std::string& reason) const { fail_damaged(database_, reason); }

 private:
  void check(int status) const;

  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

/// Runs statements without results. Throws as Statement does.
void execute(sqlite3* database, const std::string& sql);

}  // namespace tessera::server
