#include "server/store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "server/refusal.h"

namespace tessera::server {
namespace {

namespace fs = std::filesystem;

// An id in the form of the server's ids.
std::string id_of(const std::string& letters) {
  return letters + std::string(24 - letters.size(), '0');
}

mode_t mode_of(const fs::path& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 ? found.st_mode & 07777 : 0;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& text = "precious") {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "store-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static JobRecord record(const std::string& id, JobState state = JobState::queued) {
    JobRecord r;
    r.id = id;
    r.client = "anna";
    r.model = "shapes";
    r.state = state;
    r.created = 1;
    r.request = {{"prompt", "caf\u00e9 'quoted'; DROP TABLE jobs"}};
    r.ended = state > JobState::running ? 5 : 0;
    return r;
  }
  void change(const std::string& how) const {
    sqlite3* file = nullptr;
    ASSERT_EQ(sqlite3_open((folder_ + "/jobs.sqlite").c_str(), &file), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(file, how.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << how;
    sqlite3_close(file);
  }
  // The code and message of a folder's refusal; "": accepted.
  static std::string refusal(const std::string& folder) {
    try {
      const Store store(folder);
      (void)store.unfinished();
    } catch (const Error& e) {
      return std::to_string(int(e.code())) + " " + e.what();
    }
    return "";
  }
  void expect_refused(const std::string& folder, const std::string& says) const {
    const std::string said = refusal(folder);
    EXPECT_NE(said.find(says), std::string::npos) << "'" << said << "' for " << says;
  }
  std::string folder_;
};

TEST_F(StoreTest, GivesBackAllOfAJob) {
  JobRecord before = record(id_of("1"), JobState::done);
  before.kind = Kind::text;
  before.results = Json::array({{{"file", "0.png"}, {"type", "image/png"}}});
  before.text = "said";
  before.report = {{"steps", 3}};
  before.usage = {{"total_tokens", 4}};
  before.last_event = 9;
  {
    Store store(folder_);
    store.put(before);
  }
  const Store store(folder_);
  const auto after = store.find(id_of("1"));
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(text_of(json_of(*after)), text_of(json_of(before)));
  EXPECT_EQ(after->client, "anna");
  EXPECT_EQ(after->last_event, 9U);
  EXPECT_EQ(after->kind, Kind::text);
  EXPECT_FALSE(store.find(id_of("2")).has_value());
}

// Sets another place for temporary folders until destruction.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& folder) {
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    ::setenv("TMPDIR", folder.c_str(), 1);
  }
  ~TemporaryFolder() {
    before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

 private:
  std::string before_;
};

// Leaves a temporary store of a killed process.
void leave_temporary() {
  const pid_t child = ::fork();
  if (child == 0) {
    auto* const store = new Store("");
    ::_exit(store->folder().empty() ? 1 : 0);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(StoreTest, SweepsWhatAKilledServerLeft) {
  const TemporaryFolder here(folder_);
  leave_temporary();
  ASSERT_FALSE(fs::is_empty(folder_));
  const std::string left = fs::directory_iterator(folder_)->path();
  { const Store store(""); }
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(StoreTest, SweepsNothingElseOfThatName) {
  const TemporaryFolder here(folder_);
  const fs::path named = folder_ + "/tessera-serve-abcdef",
                 other = folder_ + "/tessera-serve-ghijkl";
  {  // a user's store with such a name, still in use
    Store store(named);
    JobRecord one = record(id_of("1"), JobState::done);
    store.put(one);
  }
  write(other / "lock");
  write(other / "jobs.sqlite");
  write(folder_ + "/target/lock", "temporary tessera-serve store\n");
  fs::create_directory_symlink(folder_ + "/target", folder_ + "/tessera-serve-mnopqr");
  leave_temporary();
  std::string left;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (entry.is_directory() && !entry.is_symlink() && fs::exists(entry.path() / "results") &&
        entry.path() != named)
      left = entry.path();
  write(left + "/mine.txt");
  write(left + "/results/" + id_of("a") + "/notes.txt");
  { const Store store(""); }
  EXPECT_TRUE(Store(named).find(id_of("1")).has_value());
  EXPECT_EQ(bytes_of(other / "jobs.sqlite"), "precious");
  EXPECT_TRUE(fs::exists(folder_ + "/target/lock"));
  EXPECT_EQ(bytes_of(left + "/mine.txt"), "precious") << "what others put there stays";
  EXPECT_EQ(bytes_of(left + "/results/" + id_of("a") + "/notes.txt"), "precious");
}

TEST_F(StoreTest, KeepsTheOrderOfArrival) {
  Store store(folder_);
  std::vector<JobRecord> all;
  for (const char* letter : {"a", "b", "c", "d"}) {
    all.push_back(record(id_of(letter)));
    store.put(all.back());
  }
  all[1].state = JobState::running;
  store.put(all[1]);
  all[2].state = JobState::done;
  all[2].ended = 7;
  store.put(all[2]);
  std::string unfinished;
  for (const JobRecord& r : store.unfinished()) unfinished += r.id[0];
  EXPECT_EQ(unfinished, "abd");
  const auto newest = store.list("", 2, "");
  ASSERT_EQ(newest.size(), 2U);
  EXPECT_EQ(newest[0].first + newest[1].first, id_of("d") + id_of("c"));
  EXPECT_EQ(newest[1].second["state"], "done");
  EXPECT_EQ(store.list("", 9, id_of("c")).size(), 2U);
  EXPECT_EQ(store.list("bert", 9, "").size(), 0U);
  EXPECT_EQ(store.ended_before(8, 9), std::vector<std::string>{id_of("c")});
  EXPECT_TRUE(store.ended_before(8, 9, "bert").empty());
  EXPECT_TRUE(store.ended_before(7, 9).empty());
}

TEST_F(StoreTest, FilesGoWithTheirJob) {
  Store store(folder_);
  JobRecord one = record(id_of("1"));
  store.put(one);
  const fs::path files = store.folder_of(one.id);
  for (const char* name : {"0.png", "11.mp4", "preview.png", ".tessera-0123456789abcdef"})
    write(files / name);
  store.remove(one.id);
  EXPECT_FALSE(fs::exists(files));
  EXPECT_FALSE(store.find(one.id).has_value());
}

TEST_F(StoreTest, OtherFilesBesideThoseOfAJobStay) {
  Store store(folder_);
  JobRecord one = record(id_of("1"));
  store.put(one);
  const fs::path files = store.folder_of(one.id);
  for (const char* name : {"0.png", "notes.txt", "0.png.bak", "x.png", "deep/0.png"})
    write(files / name);
  fs::create_symlink(folder_ + "/jobs.sqlite", files / "1.png");
  store.remove(one.id);
  EXPECT_FALSE(fs::exists(files / "0.png"));
  EXPECT_FALSE(fs::is_symlink(files / "1.png"));
  EXPECT_TRUE(fs::exists(folder_ + "/jobs.sqlite"));
  for (const char* name : {"notes.txt", "0.png.bak", "x.png", "deep/0.png"})
    EXPECT_TRUE(fs::exists(files / name)) << name;
}

TEST_F(StoreTest, FilesOfNoJobGoAtTheStart) {
  { const Store store(folder_); }
  const fs::path results = folder_ + "/results", stray = results / id_of("e");
  write(stray / "0.png");
  for (const char* other : {"paper/table.csv", "ABCDEF000000000000000000/0.png", "notes.txt",
                            "0123456789abcdef0123456/0.png"})
    write(results / other);
  write(folder_ + "/victim/0.png");
  fs::create_directory_symlink(folder_ + "/victim", results / id_of("f"));
  { const Store store(folder_); }
  EXPECT_FALSE(fs::exists(stray));
  for (const char* other : {"paper/table.csv", "ABCDEF000000000000000000/0.png", "notes.txt",
                            "0123456789abcdef0123456/0.png"})
    EXPECT_TRUE(fs::exists(results / other)) << other;
  EXPECT_TRUE(fs::exists(folder_ + "/victim/0.png"));
}

TEST_F(StoreTest, AFolderOfOtherFilesIsRefusedAndLeftAsItIs) {
  for (const char* file :
       {"results/paper/table.csv", "results/notes.txt", "README", ".git/config"}) {
    const std::string project = folder_ + "/project";
    write(project + "/" + file);
    ::chmod(project.c_str(), 0755);
    expect_refused(project, "no jobs.sqlite");
    EXPECT_EQ(bytes_of(project + "/" + file), "precious");
    EXPECT_EQ(std::distance(fs::directory_iterator(project), {}), 1) << "nothing is added";
    EXPECT_EQ(mode_of(project), 0755U);
    fs::remove_all(project);
  }
}

TEST_F(StoreTest, ADatabaseOfAnotherProgramIsRefusedAndLeftAsItIs) {
  change("CREATE TABLE mine (x); INSERT INTO mine VALUES (1); PRAGMA user_version=7");
  const std::string before = bytes_of(folder_ + "/jobs.sqlite");
  expect_refused(folder_, "of another program");
  EXPECT_EQ(bytes_of(folder_ + "/jobs.sqlite"), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "nothing is added";
  write(folder_ + "/lock", "");
  expect_refused(folder_, "of another program");
  EXPECT_FALSE(fs::exists(folder_ + "/results"));
}

TEST_F(StoreTest, SymbolicLinksAreRefused) {
  const std::string real = folder_ + "/real", link = folder_ + "/link";
  fs::create_directory(real);
  fs::create_directory_symlink(real, link);
  for (const char* end : {"", "/", "/.", "//", "/./"}) expect_refused(link + end, "symbolic link");
  EXPECT_TRUE(fs::is_empty(real));
  { const Store store(real); }
  for (const char* name : {"results", "lock", "jobs.sqlite"}) {
    const fs::path path = real + "/" + name;
    fs::rename(path, folder_ + "/aside");
    fs::create_symlink(folder_ + "/aside", path);
    expect_refused(real, name);
    fs::remove(path);
    fs::rename(folder_ + "/aside", path);
  }
  EXPECT_EQ(refusal(real), "");
}

TEST_F(StoreTest, WhatOthersMayWriteIsRefused) {
  const std::string store = folder_ + "/store";
  { const Store made(store); }
  for (const char* name : {"", "/results", "/lock", "/jobs.sqlite"})
    for (const mode_t others : {0020, 0002}) {
      const mode_t before = mode_of(store + name);
      ::chmod((store + name).c_str(), before | others);
      EXPECT_NE(refusal(store), "") << name;
      ::chmod((store + name).c_str(), before);
    }
  EXPECT_EQ(refusal(store), "");
}

TEST_F(StoreTest, WhatBelongsToOthersIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  const std::string store = folder_ + "/store";
  { const Store made(store); }
  for (const char* name : {"", "/results", "/lock", "/jobs.sqlite"}) {
    ASSERT_EQ(::chown((store + name).c_str(), 65534, 65534), 0);
    expect_refused(store, "another user");
    ASSERT_EQ(::chown((store + name).c_str(), 0, 0), 0);
  }
  EXPECT_EQ(refusal(store), "");
}

TEST_F(StoreTest, IsForItsOwnerAloneWhateverWasThere) {
  const std::string name = folder_ + "/new";
  fs::create_directory(name);
  ::chmod(name.c_str(), 0755);
  const mode_t before = ::umask(0);
  {
    Store store(name);
    JobRecord one = record(id_of("1"));
    store.put(one);
    store.folder_of(one.id);
    for (const char* file : {"/lock", "/jobs.sqlite", "/jobs.sqlite-wal", "/jobs.sqlite-shm"})
      EXPECT_EQ(mode_of(name + file), 0600U) << file;
    for (const char* folder : {"", "/results"}) EXPECT_EQ(mode_of(name + folder), 0700U) << folder;
    EXPECT_EQ(mode_of(name + "/results/" + one.id), 0700U);
    write(name + "/results/" + one.id + "/0.png");
  }
  ::umask(before);
  for (const char* folder : {"", "/results"}) ::chmod((name + folder).c_str(), 0755);
  for (const char* file : {"/lock", "/jobs.sqlite"}) ::chmod((name + file).c_str(), 0644);
  { const Store store(name); }
  for (const char* file : {"/lock", "/jobs.sqlite"}) EXPECT_EQ(mode_of(name + file), 0600U) << file;
  EXPECT_EQ(mode_of(name), 0700U);
  EXPECT_EQ(mode_of(name + "/results/" + id_of("1") + "/0.png"), 0600U);
}

TEST_F(StoreTest, WhatADatabaseSaysIsNoPathUntilItIsLookedAt) {
  write(folder_ + "/victim/0.png");
  const auto planted = [&](const std::string& how) {
    fs::remove_all(folder_ + "/store");
    const std::string kept = folder_;
    folder_ += "/store";
    {
      Store store(folder_);
      JobRecord one = record(id_of("1"), JobState::done);
      one.results = Json::array({{{"file", "0.png"}, {"type", "image/png"}}});
      store.put(one);
    }
    change(how);
    std::string said;
    try {
      Store store(folder_);
      (void)store.find(id_of("1"));
      for (const std::string& id : store.ended_before(1e12, 9)) store.remove(id);
    } catch (const Error& e) {
      said = e.what();
    }
    folder_ = kept;
    EXPECT_NE(said.find("no server wrote"), std::string::npos) << how << ": " << said;
    EXPECT_EQ(bytes_of(folder_ + "/victim/0.png"), "precious") << how;
  };
  for (const char* id : {"../../victim", "..", "", "/etc", "0123456789abcdef0123456/",
                         "0123456789ABCDEF01234567", "0123456789abcdef012345678"})
    planted(std::string("UPDATE jobs SET id = '") + id + "'");
  for (const char* results :
       {R"([{"file": "../../../victim/0.png", "type": "image/png"}])",
        R"([{"file": "/etc/hostname", "type": "image/png"}])", R"([{"file": "0.png"}])",
        R"([{"file": "0.txt", "type": "text/html"}])",
        R"([{"file": "0.png", "type": "text/html\r\nX: y"}])",
        R"([{"file": 7, "type": "image/png"}])", R"([7])", R"({})", R"("x")",
        R"([{"file": ".png", "type": "image/png"}])",
        R"([{"file": "0.png", "type": "image/png", "bytes": "many"}])"})
    planted(std::string("UPDATE jobs SET results = '") + results + "'");
  planted("UPDATE jobs SET kind = 9");
  planted("UPDATE jobs SET error = '7'");
}

TEST_F(StoreTest, ATriggerOfTheDatabaseDoesNotRun) {
  {
    Store store(folder_);
    for (const char* letter : {"1", "2"}) {
      JobRecord one = record(id_of(letter), JobState::done);
      store.put(one);
    }
  }
  change("CREATE TRIGGER all_go AFTER DELETE ON jobs BEGIN DELETE FROM jobs; END");
  Store store(folder_);
  store.remove(id_of("1"));
  EXPECT_TRUE(store.find(id_of("2")).has_value());
}

TEST_F(StoreTest, OfWhatWasRemovedNothingIsInTheFile) {
  const std::string secret = "davesecretdave";
  const auto found = [&] {
    std::string all;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.is_regular_file()) all += bytes_of(entry.path());
    return all.find(secret) != std::string::npos;
  };
  Store store(folder_);
  for (const int size : {1, 5000}) {
    JobRecord one = record(id_of("1"), JobState::done);
    for (int i = 0; i < size; ++i)
      one.request["prompt"] = one.request["prompt"].get<std::string>() + secret;
    store.put(one);
    EXPECT_TRUE(found());
    store.remove(one.id);
    store.tidy();
    EXPECT_FALSE(found()) << size;
  }
}

TEST_F(StoreTest, KnowsWhatItsJobsTake) {
  {
    Store store(folder_);
    JobRecord one = record(id_of("1"), JobState::done), two = record(id_of("2"));
    one.results = Json::array({{{"file", "0.png"}, {"type", "image/png"}, {"bytes", 100000}}});
    two.client = "bert";
    store.put(one);
    store.put(two);
    store.put(one);
    EXPECT_GT(store.bytes()["anna"], 100000);
    EXPECT_LT(store.bytes()["anna"], 110000) << "once";
    EXPECT_LT(store.bytes()["bert"], 10000);
  }
  Store store(folder_);
  EXPECT_EQ(store.clients(), (std::vector<std::string>{"anna", "bert"}));
  EXPECT_GT(store.bytes()["anna"], 100000);
  store.remove(id_of("1"));
  EXPECT_EQ(store.clients(), std::vector<std::string>{"bert"});
}

TEST_F(StoreTest, ListsWithoutLongTexts) {
  Store store(folder_);
  JobRecord one = record(id_of("1"));
  one.request = {{"prompt", std::string(60000, 'x')}, {"steps", 4}};
  store.put(one);
  const auto listed = store.list("", 9, "");
  EXPECT_LT(text_of(listed.at(0).second).size(), 2000U);
  EXPECT_EQ(listed[0].second["shortened"], Json::array({"request"}));
  EXPECT_EQ(listed[0].second["request"]["steps"], 4);
  EXPECT_EQ(store.find(one.id)->request["prompt"].get<std::string>().size(), 60000U);
}

// As made by servers before the store had a format version.
TEST_F(StoreTest, AFormerOneGoesOn) {
  change(
      "PRAGMA journal_mode=WAL;"
      "CREATE TABLE jobs (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
      " client TEXT NOT NULL, model TEXT NOT NULL, kind INTEGER NOT NULL, state TEXT NOT NULL,"
      " created REAL NOT NULL, started REAL NOT NULL, ended REAL NOT NULL, request TEXT NOT NULL,"
      " previews INTEGER NOT NULL, results TEXT NOT NULL, text TEXT NOT NULL, error TEXT NOT NULL,"
      " report TEXT NOT NULL, usage TEXT NOT NULL, last_event INTEGER NOT NULL);"
      "INSERT INTO jobs VALUES (5, '" +
      id_of("1") +
      "', 'anna', 'shapes', 0, 'done', 1, 2, 3, "
      "'{\"steps\": 4}', 0, '[{\"file\": \"0.png\", \"type\": \"image/png\"}]', 'null', "
      "'null', 'null', 'null', 9)");
  write(folder_ + "/lock", "");
  write(folder_ + "/results/" + id_of("1") + "/0.png", std::string(5000, 'x'));
  ::chmod((folder_ + "/results").c_str(), 0755);
  for (int start = 0; start < 2; ++start) {
    Store store(folder_);
    const auto found = store.find(id_of("1"));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->number, 5);
    EXPECT_GT(store.bytes()["anna"], 5000);
    EXPECT_EQ(store.list("", 9, "").at(0).second["request"]["steps"], 4);
    EXPECT_EQ(bytes_of(store.file(id_of("1"), "0.png")).size(), 5000U);
  }
}

TEST_F(StoreTest, FilesAreGivenWhereTheyAreReal) {
  Store store(folder_);
  const fs::path files = store.folder_of(id_of("1"));
  write(files / "0.png");
  fs::create_symlink("/etc/hostname", files / "1.png");
  fs::create_directory_symlink(files, folder_ + "/results/" + id_of("2"));
  EXPECT_EQ(bytes_of(store.file(id_of("1"), "0.png")), "precious");
  EXPECT_EQ(store.file(id_of("1"), "1.png"), "");
  EXPECT_EQ(store.file(id_of("2"), "0.png"), "");
  EXPECT_EQ(store.file(id_of("1"), "../lock"), "");
  EXPECT_EQ(store.file("..", "0.png"), "");
  EXPECT_THROW(store.folder_of("../x"), Error);
  EXPECT_THROW(store.folder_of(id_of("2")), Error) << "a symbolic link";
}

TEST_F(StoreTest, IsOneServers) {
  const Store store(folder_);
  EXPECT_THROW(Store{folder_}, Error);
}

TEST_F(StoreTest, IsNamedWhereItCannotBe) {
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_THROW(Store{folder_ + "/file"}, Error);
  fs::remove(folder_ + "/file");
  { const Store store(folder_); }
  std::ofstream(folder_ + "/jobs.sqlite") << std::string(5000, 'x');
  EXPECT_THROW(Store{folder_}, Error);
}

// A store of another program, or with changed rows, is reported as such.
TEST_F(StoreTest, OneThatIsDamagedIsNamed) {
  const auto said = [&] {
    try {
      const Store store(folder_);
      (void)store.unfinished();
    } catch (const Error& e) {
      return std::string(e.code() == ErrorCode::model ? e.what() : "another code");
    }
    return std::string("nothing");
  };
  {
    Store store(folder_);
    JobRecord one = record(id_of("1"));
    store.put(one);
  }
  EXPECT_EQ(said(), "nothing");
  change("UPDATE jobs SET request = '{bad'");
  EXPECT_NE(said().find("jobs.sqlite' cannot be used: a job holds no JSON; name another --store"),
            std::string::npos);
  change("UPDATE jobs SET request = '{}', kind = 0");
  EXPECT_EQ(said(), "nothing");
  change("ALTER TABLE jobs RENAME COLUMN report TO rep");
  EXPECT_NE(said().find("no such column"), std::string::npos);
}

TEST_F(StoreTest, ATemporaryOneNeedsAPlace) {
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  setenv("TMPDIR", (folder_ + "/none").c_str(), 1);
  try {
    const Store store("");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("TMPDIR"), std::string::npos) << e.what();
  }
  before ? setenv("TMPDIR", kept.c_str(), 1) : unsetenv("TMPDIR");
}

TEST_F(StoreTest, ATemporaryOneGoes) {
  std::string folder;
  {
    const Store store("");
    folder = store.folder();
    EXPECT_TRUE(fs::exists(folder));
  }
  EXPECT_FALSE(fs::exists(folder));
}

}  // namespace
}  // namespace tessera::server
