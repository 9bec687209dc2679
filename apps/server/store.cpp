#include "server/store.h"

#include <mutex>

#include "server/brief.h"
#include "server/refusal.h"
#include "server/statement.h"

namespace tessera::server {
namespace {

constexpr int kFormat = 2;            // user_version; format 1 had none
constexpr int64_t kBytesOfJob = 512;  // overhead of a job beside texts and files
constexpr const char* kColumns =
    "number, id, client, model, kind, state, created, started, ended, request, previews, results, "
    "text, error, report, usage, last_event";

constexpr const char* kSchema =
    "CREATE TABLE jobs (number INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE, client TEXT NOT NULL, model TEXT NOT NULL, kind INTEGER NOT NULL,"
    " state TEXT NOT NULL, created REAL NOT NULL, started REAL NOT NULL, ended REAL NOT NULL,"
    " request TEXT NOT NULL, previews INTEGER NOT NULL, results TEXT NOT NULL, text TEXT NOT NULL,"
    " error TEXT NOT NULL, report TEXT NOT NULL, usage TEXT NOT NULL,"
    " last_event INTEGER NOT NULL, bytes INTEGER NOT NULL, brief TEXT NOT NULL);"
    "CREATE INDEX by_state ON jobs (state, number);"
    "CREATE INDEX by_end ON jobs (ended);"
    "CREATE INDEX by_client ON jobs (client, number);";

constexpr const char* kUpgrade =
    "ALTER TABLE jobs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN brief TEXT NOT NULL DEFAULT '';";

// The database may come from a stranger: only these statements may run.
void configure(sqlite3* database) {
  sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  execute(database, "PRAGMA secure_delete=ON; PRAGMA cell_size_check=ON");
}

bool is_result(const Json& result) {
  const auto word = [&](const char* name) {
    const auto it = result.find(name);
    return it != result.end() && it->is_string() ? it->get<std::string>() : "";
  };
  if (!result.is_object() || !is_result_name(word("file"))) return false;
  const auto bytes = result.find("bytes");
  if (bytes != result.end() && (!bytes->is_number_integer() || *bytes < 0)) return false;
  return word("type") == (word("file").ends_with(".mp4") ? "video/mp4" : "image/png");
}

bool is_whole(const JobRecord& r) {
  if (!is_job_id(r.id) || r.kind < Kind::image || r.kind > Kind::text || r.previews < 0 ||
      !r.results.is_array())
    return false;
  if (!r.error.is_null() && !r.error.is_object()) return false;
  for (const Json& result : r.results)
    if (!is_result(result)) return false;
  return true;
}

// Checks all values that become paths or are used unchecked later.
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
  if (!is_whole(r)) row.fail("a job holds what no server wrote");
  return r;
}

std::string id_of(const Statement& row) {
  std::string id = row.text(0);
  if (!is_job_id(id)) row.fail("a job holds what no server wrote");
  return id;
}

std::vector<std::string> ids_in(Statement& rows) {
  std::vector<std::string> ids;
  while (rows.step()) ids.push_back(id_of(rows));
  return ids;
}

int64_t number_in(sqlite3* database, const std::string& sql) {
  Statement row(database, sql);
  return row.step() ? row.whole(0) : 0;
}

}  // namespace

struct Store::Database {
  sqlite3* handle = nullptr;
  mutable std::mutex mutex;
  bool removed = false;  // removed data may still be in the file
  std::map<std::string, int64_t> bytes;

  ~Database() { sqlite3_close(handle); }
  // Client of a job, and the job's bytes. Requires the lock.
  std::pair<std::string, int64_t> client_and_bytes(const std::string& id) const {
    Statement row(handle, "SELECT client, bytes FROM jobs WHERE id = ?");
    row.bind(id);
    if (!row.step()) return {};
    return {row.text(0), row.whole(1)};
  }
  void add(const std::string& client, int64_t more) {
    if ((bytes[client] += more) <= 0) bytes.erase(client);
  }
};

Store::Store(const std::string& folder) : folder_(folder) { open(); }
Store::~Store() = default;

void Store::open() {
  database_ = std::make_unique<Database>();
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
  sqlite3*& handle = database_->handle;
  if (sqlite3_open_v2(folder_.database().c_str(), &handle, flags, nullptr) != SQLITE_OK)
    throw Error(ErrorCode::model, "'" + folder_.database() + "' cannot be used: " +
                                      sqlite3_errmsg(handle) + "; name another --store");
  try {
    configure(handle);
    upgrade();
    execute(handle, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL");
  } catch (const Refusal& refusal) {
    throw Error(ErrorCode::usage, "--store '" + folder_.path() + "': " + refusal.what() +
                                      ", or name a folder elsewhere");
  }
  folder_.open_results();
  const std::vector<std::string> job_ids = ids();
  // Removes folders without a job, left by an interrupted removal.
  if (folder_.had_database()) folder_.clear_all_but({job_ids.begin(), job_ids.end()});
  database_->removed = folder_.had_database();
  Statement rows(handle, "SELECT client, SUM(bytes) FROM jobs GROUP BY client");
  while (rows.step()) database_->bytes[rows.text(0)] = rows.whole(1);
}

// Creates tables in a new database, or adds missing columns to an older version, in one
// transaction.
void Store::upgrade() {
  sqlite3* const handle = database_->handle;
  const int64_t stamp = number_in(handle, "PRAGMA application_id");
  const int64_t format = number_in(handle, "PRAGMA user_version");
  const int64_t tables = number_in(handle, "SELECT COUNT(*) FROM sqlite_master");
  const auto refuse = [&](const std::string& reason) {
    throw Error(ErrorCode::usage,
                "--store '" + folder_.path() + "': " + reason + "; name an empty or a new folder");
  };
  if (stamp == kStoreId && format == kFormat) return;
  if (stamp == kStoreId) refuse("its jobs.sqlite is of another version of Tessera");
  const bool former =
      number_in(handle,
                "SELECT COUNT(*) FROM pragma_table_info('jobs') WHERE name IN "
                "('number', 'id', 'client', 'request', 'results', 'last_event')") == 6;
  if (stamp != 0 || format != 0 || (tables > 0 && !former))
    refuse("its jobs.sqlite is of another program");
  if (tables == 0 && folder_.has_results())
    refuse("its jobs.sqlite knows no job, and 'results' is not empty");
  execute(handle, std::string("BEGIN IMMEDIATE;") + (tables == 0 ? kSchema : kUpgrade));
  for (const std::string& id : ids()) {
    JobRecord r = *find(id);
    for (Json& result : r.results) result["bytes"] = folder_.bytes(id, result["file"]);
    put(r);
  }
  execute(handle, "PRAGMA application_id=" + std::to_string(kStoreId) +
                      ";PRAGMA user_version=" + std::to_string(kFormat) + ";COMMIT");
  if (tables > 0) execute(handle, "VACUUM");  // purges rows deleted earlier
}

void Store::put(JobRecord& r) {
  const std::lock_guard lock(database_->mutex);
  const std::string number = r.number > 0 ? "?19" : "NULL";
  Statement row(database_->handle,
                std::string("INSERT OR REPLACE INTO jobs (id, client, model, kind, state, created, "
                            "started, ended, request, previews, results, text, error, report, "
                            "usage, last_event, brief, bytes, number) "
                            "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,") +
                    number + ")");
  int64_t bytes = kBytesOfJob + bytes_of(r.results);
  const auto bind = [&](const Json& value) {
    const std::string text = text_of(value);
    bytes += int64_t(text.size());
    row.bind(text);
  };
  row.bind(r.id).bind(r.client).bind(r.model).bind(int64_t(r.kind));
  row.bind(std::string(word_of(r.state))).bind(r.created).bind(r.started).bind(r.ended);
  bind(r.request);
  row.bind(int64_t{r.previews});
  for (const Json* value : {&r.results, &r.text, &r.error, &r.report, &r.usage}) bind(*value);
  row.bind(int64_t(r.last_event));
  bind(brief_of(json_of(r)));
  row.bind(bytes);
  if (r.number > 0) row.bind(r.number);
  const auto [client, before] = database_->client_and_bytes(r.id);
  row.step();
  database_->add(client, -before);
  database_->add(r.client, bytes);
  if (r.number == 0) r.number = sqlite3_last_insert_rowid(database_->handle);
}

std::optional<JobRecord> Store::find(const std::string& id) const {
  const std::lock_guard lock(database_->mutex);
  Statement row(database_->handle, std::string("SELECT ") + kColumns + " FROM jobs WHERE id = ?");
  row.bind(id);
  if (!row.step()) return std::nullopt;
  return record_of(row);
}

std::vector<std::pair<std::string, Json>> Store::list(const std::string& client, int limit,
                                                      const std::string& before) const {
  const std::lock_guard lock(database_->mutex);
  std::string condition = " WHERE 1";
  if (!client.empty()) condition += " AND client = ?";
  if (!before.empty()) condition += " AND number < (SELECT number FROM jobs WHERE id = ?)";
  Statement rows(database_->handle,
                 "SELECT id, brief FROM jobs" + condition + " ORDER BY number DESC LIMIT ?");
  if (!client.empty()) rows.bind(client);
  if (!before.empty()) rows.bind(before);
  rows.bind(int64_t{limit});
  std::vector<std::pair<std::string, Json>> jobs;
  while (rows.step()) jobs.emplace_back(id_of(rows), rows.json(1));
  return jobs;
}

std::vector<JobRecord> Store::unfinished() const {
  const std::lock_guard lock(database_->mutex);
  Statement rows(database_->handle, std::string("SELECT ") + kColumns +
                                        " FROM jobs WHERE state IN ('queued', 'running') "
                                        "ORDER BY number");
  std::vector<JobRecord> records;
  while (rows.step()) records.push_back(record_of(rows));
  return records;
}

std::vector<std::string> Store::ended_before(double time, int limit,
                                             const std::string& client) const {
  const std::lock_guard lock(database_->mutex);
  Statement rows(database_->handle,
                 std::string("SELECT id FROM jobs WHERE ended > 0 AND ended < ?") +
                     (client.empty() ? "" : " AND client = ?") + " ORDER BY ended LIMIT ?");
  rows.bind(time);
  if (!client.empty()) rows.bind(client);
  rows.bind(int64_t{limit});
  return ids_in(rows);
}

std::vector<std::string> Store::clients() const {
  std::vector<std::string> names;
  for (const auto& [client, bytes] : this->bytes()) names.push_back(client);
  return names;
}

std::map<std::string, int64_t> Store::bytes() const {
  const std::lock_guard lock(database_->mutex);
  return database_->bytes;
}

void Store::remove(const std::string& id) {
  clear(id);  // first, because removal frees space on a full disk
  const std::lock_guard lock(database_->mutex);
  const auto [client, before] = database_->client_and_bytes(id);
  Statement row(database_->handle, "DELETE FROM jobs WHERE id = ?");
  row.bind(id).step();
  database_->removed = true;
  database_->add(client, -before);
}

// Truncates the log, because its pages may hold deleted data.
void Store::tidy() {
  const std::lock_guard lock(database_->mutex);
  if (!database_->removed) return;
  if (sqlite3_wal_checkpoint_v2(database_->handle, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr,
                                nullptr) == SQLITE_OK)
    database_->removed = false;
}

std::vector<std::string> Store::ids() const {
  Statement rows(database_->handle, "SELECT id FROM jobs");
  return ids_in(rows);
}

}  // namespace tessera::server
