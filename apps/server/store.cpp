#include "server/store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

#include "server/refusal.h"

namespace tessera::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTemporary = "tessera-serve-";
constexpr const char* kColumns =
    "number, id, client, model, kind, state, created, started, ended, request, previews, results, "
    "text, error, report, usage, last_event";

constexpr const char* kSchema =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    "CREATE TABLE IF NOT EXISTS jobs (number INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE, client TEXT NOT NULL, model TEXT NOT NULL, kind INTEGER NOT NULL,"
    " state TEXT NOT NULL, created REAL NOT NULL, started REAL NOT NULL, ended REAL NOT NULL,"
    " request TEXT NOT NULL, previews INTEGER NOT NULL, results TEXT NOT NULL, text TEXT NOT NULL,"
    " error TEXT NOT NULL, report TEXT NOT NULL, usage TEXT NOT NULL,"
    " last_event INTEGER NOT NULL);"
    "CREATE INDEX IF NOT EXISTS by_state ON jobs (state, number);"
    "CREATE INDEX IF NOT EXISTS by_end ON jobs (ended);"
    "CREATE INDEX IF NOT EXISTS by_client ON jobs (client, number);";

// One statement: bound, stepped, and reset at the end.
[[noreturn]] void fail_damaged(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::model, "'" + path + "' cannot be used: " + why +
                                    "; name another --store, or remove the file and its jobs");
}

class Statement {
 public:
  Statement(sqlite3* database, const std::string& sql) : database_(database) {
    check(sqlite3_prepare_v2(database, sql.c_str(), -1, &statement_, nullptr));
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(const std::string& text) {
    check(sqlite3_bind_text(statement_, ++bound_, text.data(), int(text.size()), SQLITE_TRANSIENT));
    return *this;
  }
  Statement& bind(int64_t value) {
    check(sqlite3_bind_int64(statement_, ++bound_, value));
    return *this;
  }
  Statement& bind(double value) {
    check(sqlite3_bind_double(statement_, ++bound_, value));
    return *this;
  }
  Statement& bind(const Json& value) { return bind(text_of(value)); }
  bool step() {
    const int status = sqlite3_step(statement_);
    if (status != SQLITE_ROW && status != SQLITE_DONE) check(status);
    return status == SQLITE_ROW;
  }
  std::string text(int column) const {
    const auto* found = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return found ? std::string(found, size_t(sqlite3_column_bytes(statement_, column))) : "";
  }
  int64_t whole(int column) const { return sqlite3_column_int64(statement_, column); }
  double number(int column) const { return sqlite3_column_double(statement_, column); }
  Json json(int column) const {
    Json made = Json::parse(text(column), nullptr, false);
    if (made.is_discarded())
      fail_damaged(sqlite3_db_filename(database_, "main"), "a job holds no JSON");
    return made;
  }

 private:
  void check(int status) const {
    if (status == SQLITE_OK) return;
    const int kind = status & 0xff;  // of the extended code
    if (kind != SQLITE_FULL && kind != SQLITE_IOERR && kind != SQLITE_BUSY)
      fail_damaged(sqlite3_db_filename(database_, "main"), sqlite3_errmsg(database_));
    throw Refusal(507, "storage",
                  std::string("the store cannot be used: ") + sqlite3_errmsg(database_) +
                      "; make room on its disk",
                  "", 30);
  }

  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

JobRecord record_of(const Statement& row) {
  JobRecord r;
  r.number = row.whole(0);
  r.id = row.text(1);
  r.client = row.text(2);
  r.model = row.text(3);
  r.kind = static_cast<Kind>(row.whole(4));
  r.state = state_of(row.text(5));
  r.created = row.number(6);
  r.started = row.number(7);
  r.ended = row.number(8);
  r.request = row.json(9);
  r.previews = static_cast<int>(row.whole(10));
  r.results = row.json(11);
  r.text = row.json(12);
  r.error = row.json(13);
  r.report = row.json(14);
  r.usage = row.json(15);
  r.last_event = static_cast<uint64_t>(row.whole(16));
  return r;
}

std::string reason() { return std::strerror(errno); }

// Stores that servers left who were killed: nobody holds their lock.
void sweep_temporary(const fs::path& among) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(among, ignored)) {
    struct stat found {};
    const std::string name = entry.path().string(), lock_path = name + "/lock";
    const bool one = entry.path().filename().string().starts_with(kTemporary);
    if (!one || lstat(name.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
        found.st_uid != geteuid())
      continue;
    const int lock = ::open(lock_path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (lock < 0) continue;
    const bool left = flock(lock, LOCK_EX | LOCK_NB) == 0;
    // One that begins has its file of jobs a moment after its lock.
    if (left && fs::exists(name + "/jobs.sqlite", ignored)) fs::remove_all(name, ignored);
    ::close(lock);
  }
}

std::string make_temporary() {
  std::error_code none;
  const fs::path among = fs::temp_directory_path(none);
  if (none)
    throw Error(ErrorCode::usage, "there is no folder for temporary files (TMPDIR): " +
                                      none.message() + "; name a folder with --store");
  sweep_temporary(among);
  std::string name = (among / (std::string(kTemporary) + "XXXXXX")).string();
  if (!mkdtemp(name.data()))
    throw Error(ErrorCode::usage, "cannot make a temporary folder '" + name + "': " + reason() +
                                      "; name one with --store");
  return name;
}

}  // namespace

struct Store::Database {
  sqlite3* handle = nullptr;
  mutable std::mutex mutex;
  ~Database() { sqlite3_close(handle); }
};

Store::Store(const std::string& folder) : folder_(folder), temporary_(folder.empty()) {
  if (temporary_) folder_ = make_temporary();
  try {
    open();
  } catch (...) {
    close();
    throw;
  }
}

void Store::open() {
  std::error_code ignored;
  // Prompts and images are for nobody else's eyes.
  if (fs::create_directories(folder_, ignored))
    fs::permissions(folder_, fs::perms::owner_all, ignored);
  fs::create_directories(folder_ + "/results", ignored);
  lock_ = ::open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0)
    throw Error(ErrorCode::usage, "--store '" + folder_ + "': cannot be written: " + reason() +
                                      "; name a folder that can");
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0)
    throw Error(ErrorCode::usage,
                "--store '" + folder_ + "': another server has it; name another folder");
  database_ = std::make_unique<Database>();
  const std::string path = folder_ + "/jobs.sqlite";
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  int status = sqlite3_open_v2(path.c_str(), &database_->handle, flags, nullptr);
  if (status == SQLITE_OK)
    status = sqlite3_exec(database_->handle, kSchema, nullptr, nullptr, nullptr);
  if (status == SQLITE_FULL)
    throw Error(ErrorCode::usage, "--store '" + folder_ +
                                      "': its disk is full; make room, or name a folder elsewhere");
  if (status != SQLITE_OK) fail_damaged(path, sqlite3_errmsg(database_->handle));
  remove_strays();
}

void Store::close() {
  database_.reset();
  if (lock_ >= 0) ::close(lock_);
  std::error_code ignored;
  if (temporary_) fs::remove_all(folder_, ignored);
}

Store::~Store() { close(); }

void Store::put(JobRecord& r) {
  const std::lock_guard lock(database_->mutex);
  const std::string number = r.number > 0 ? "?17" : "NULL";
  Statement row(database_->handle, std::string("INSERT OR REPLACE INTO jobs (id, client, model, ") +
                                       "kind, state, created, started, ended, request, previews, "
                                       "results, text, error, report, usage, last_event, number) "
                                       "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?," +
                                       number + ")");
  row.bind(r.id).bind(r.client).bind(r.model).bind(int64_t(r.kind));
  row.bind(std::string(word_of(r.state))).bind(r.created).bind(r.started).bind(r.ended);
  row.bind(r.request).bind(int64_t{r.previews}).bind(r.results).bind(r.text);
  row.bind(r.error).bind(r.report).bind(r.usage).bind(int64_t(r.last_event));
  if (r.number > 0) row.bind(r.number);
  row.step();
  if (r.number == 0) r.number = sqlite3_last_insert_rowid(database_->handle);
}

std::optional<JobRecord> Store::find(const std::string& id) const {
  const std::lock_guard lock(database_->mutex);
  Statement row(database_->handle, std::string("SELECT ") + kColumns + " FROM jobs WHERE id = ?");
  row.bind(id);
  if (!row.step()) return std::nullopt;
  return record_of(row);
}

std::vector<JobRecord> Store::list(const std::string& client, int limit,
                                   const std::string& before) const {
  const std::lock_guard lock(database_->mutex);
  std::string columns = kColumns;  // but the report, which is large and shown of one job alone
  const std::string report = "report";
  columns.replace(columns.find(report), report.size(), "'null'");
  std::string where = " WHERE 1";
  if (!client.empty()) where += " AND client = ?";
  if (!before.empty()) where += " AND number < (SELECT number FROM jobs WHERE id = ?)";
  Statement rows(database_->handle,
                 "SELECT " + columns + " FROM jobs" + where + " ORDER BY number DESC LIMIT ?");
  if (!client.empty()) rows.bind(client);
  if (!before.empty()) rows.bind(before);
  rows.bind(int64_t{limit});
  std::vector<JobRecord> found;
  while (rows.step()) found.push_back(record_of(rows));
  return found;
}

std::vector<JobRecord> Store::unfinished() const {
  const std::lock_guard lock(database_->mutex);
  Statement rows(database_->handle, std::string("SELECT ") + kColumns +
                                        " FROM jobs WHERE state IN ('queued', 'running') "
                                        "ORDER BY number");
  std::vector<JobRecord> found;
  while (rows.step()) found.push_back(record_of(rows));
  return found;
}

std::vector<std::string> Store::ended_before(double time, int limit) const {
  const std::lock_guard lock(database_->mutex);
  Statement rows(database_->handle,
                 "SELECT id FROM jobs WHERE ended > 0 AND ended < ? ORDER BY ended LIMIT ?");
  rows.bind(time).bind(int64_t{limit});
  std::vector<std::string> found;
  while (rows.step()) found.push_back(rows.text(0));
  return found;
}

void Store::remove(const std::string& id) {
  clear(id);  // first: on a disk that is full this makes the room
  const std::lock_guard lock(database_->mutex);
  Statement row(database_->handle, "DELETE FROM jobs WHERE id = ?");
  row.bind(id).step();
}

std::string Store::folder_of(const std::string& id) const {
  const std::string folder = folder_ + "/results/" + id;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(ErrorCode::usage, "cannot make '" + folder + "': " + error.message() +
                                      "; make room on the disk of --store");
  return folder;
}

void Store::clear(const std::string& id) const {
  std::error_code ignored;
  fs::remove_all(folder_ + "/results/" + id, ignored);
}

// Folders of jobs that are not there: a removal that was cut short.
void Store::remove_strays() const {
  std::set<std::string> known;
  {
    const std::lock_guard lock(database_->mutex);
    Statement rows(database_->handle, "SELECT id FROM jobs");
    while (rows.step()) known.insert(rows.text(0));
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_ + "/results", ignored))
    if (!known.contains(entry.path().filename().string())) fs::remove_all(entry.path(), ignored);
}

}  // namespace tessera::server
