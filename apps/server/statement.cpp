#include "server/statement.h"

#include "server/refusal.h"
#include "tessera/error.h"

namespace tessera::server {
namespace {

void check_status(sqlite3* database, int status) {
  if (status == SQLITE_OK) return;
  const int kind = status & 0xff;  // low byte of the extended code
  if (kind != SQLITE_FULL && kind != SQLITE_IOERR && kind != SQLITE_BUSY)
    fail_damaged(database, sqlite3_errmsg(database));
  throw Refusal(507, "storage",
                std::string("the store cannot be used: ") + sqlite3_errmsg(database) +
                    "; make room on its disk",
                "", 30);
}

}  // namespace

void fail_damaged(sqlite3* database, const std::string& reason) {
  const char* const path = sqlite3_db_filename(database, "main");
  throw Error(ErrorCode::model, "'" + std::string(path ? path : "") +
                                    "' cannot be used: " + reason +
                                    "; name another --store, or remove the file and its jobs");
}

Statement::Statement(sqlite3* database, const std::string& sql) : database_(database) {
  check(sqlite3_prepare_v2(database, sql.c_str(), -1, &statement_, nullptr));
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::bind(const std::string& text) {
  check(sqlite3_bind_text(statement_, ++bound_, text.data(), int(text.size()), SQLITE_TRANSIENT));
  return *this;
}

Statement& Statement::bind(int64_t value) {
  check(sqlite3_bind_int64(statement_, ++bound_, value));
  return *this;
}

Statement& Statement::bind(double value) {
  check(sqlite3_bind_double(statement_, ++bound_, value));
  return *this;
}

bool Statement::step() {
  const int status = sqlite3_step(statement_);
  if (status != SQLITE_ROW && status != SQLITE_DONE) check(status);
  return status == SQLITE_ROW;
}

std::string Statement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return data ? std::string(data, size_t(sqlite3_column_bytes(statement_, column))) : "";
}

int64_t Statement::whole(int column) const { return sqlite3_column_int64(statement_, column); }
double Statement::number(int column) const { return sqlite3_column_double(statement_, column); }

Json Statement::json(int column) const {
  Json value = Json::parse(text(column), nullptr, false);
  if (value.is_discarded()) fail("a job holds no JSON");
  return value;
}

void Statement::check(int status) const { check_status(database_, status); }

void execute(sqlite3* database, const std::string& sql) {
  check_status(database, sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr));
}

}  // namespace tessera::server
