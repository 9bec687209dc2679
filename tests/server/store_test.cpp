#include "server/store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "server/refusal.h"

namespace tessera::server {
namespace {

namespace fs = std::filesystem;

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
  std::string folder_;
};

TEST_F(StoreTest, GivesBackAllOfAJob) {
  JobRecord before = record("one", JobState::done);
  before.kind = Kind::text;
  before.results = Json::array({{{"file", "0.png"}}});
  before.text = "said";
  before.report = {{"steps", 3}};
  before.usage = {{"total_tokens", 4}};
  before.last_event = 9;
  {
    Store store(folder_);
    store.put(before);
  }
  const Store store(folder_);
  const auto after = store.find("one");
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(text_of(json_of(*after)), text_of(json_of(before)));
  EXPECT_EQ(after->client, "anna");
  EXPECT_EQ(after->last_event, 9U);
  EXPECT_EQ(after->kind, Kind::text);
  EXPECT_FALSE(store.find("two").has_value());
}

TEST_F(StoreTest, IsForItsOwnerAlone) {
  const std::string name = folder_ + "/new";
  const Store store(name);
  EXPECT_EQ(fs::status(name).permissions(), fs::perms::owner_all);
}

TEST_F(StoreTest, SweepsWhatAKilledServerLeft) {
  const std::string before = fs::temp_directory_path();
  ::setenv("TMPDIR", folder_.c_str(), 1);
  const fs::path left = folder_ + "/tessera-serve-abcdef", held = folder_ + "/tessera-serve-ghijkl";
  const fs::path other = folder_ + "/tessera-else";
  { const Store killed(left), elsewhere(other); }
  {
    const Store running(held);
    const Store store("");
    EXPECT_FALSE(fs::exists(left));
    EXPECT_TRUE(fs::exists(held));
    EXPECT_TRUE(fs::exists(other));
  }
  ::setenv("TMPDIR", before.c_str(), 1);
}

TEST_F(StoreTest, KeepsTheOrderOfArrival) {
  Store store(folder_);
  std::vector<JobRecord> all;
  for (const char* id : {"a", "b", "c", "d"}) {
    all.push_back(record(id));
    store.put(all.back());
  }
  all[1].state = JobState::running;
  store.put(all[1]);
  all[2].state = JobState::done;
  all[2].ended = 7;
  store.put(all[2]);
  std::string unfinished;
  for (const JobRecord& r : store.unfinished()) unfinished += r.id;
  EXPECT_EQ(unfinished, "abd");
  const auto newest = store.list("", 2, "");
  ASSERT_EQ(newest.size(), 2U);
  EXPECT_EQ(newest[0].id + newest[1].id, "dc");
  EXPECT_EQ(store.list("", 9, "c").size(), 2U);
  EXPECT_EQ(store.list("bert", 9, "").size(), 0U);
  EXPECT_EQ(store.ended_before(8, 9), std::vector<std::string>{"c"});
  EXPECT_TRUE(store.ended_before(7, 9).empty());
}

TEST_F(StoreTest, FilesGoWithTheirJob) {
  Store store(folder_);
  JobRecord one = record("one");
  store.put(one);
  std::ofstream(store.folder_of("one") + "/0.png") << "x";
  store.remove("one");
  EXPECT_FALSE(fs::exists(folder_ + "/results/one"));
  EXPECT_FALSE(store.find("one").has_value());
}

TEST_F(StoreTest, FilesOfNoJobGoAtTheStart) {
  fs::create_directories(folder_ + "/results/stray");
  const Store store(folder_);
  EXPECT_FALSE(fs::exists(folder_ + "/results/stray"));
}

TEST_F(StoreTest, IsOneServers) {
  const Store store(folder_);
  EXPECT_THROW(Store{folder_}, Error);
}

TEST_F(StoreTest, IsNamedWhereItCannotBe) {
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_THROW(Store{folder_ + "/file"}, Error);
  std::ofstream(folder_ + "/jobs.sqlite") << std::string(5000, 'x');
  EXPECT_THROW(Store{folder_}, Error);
}

// A store of another program, or one whose rows were changed: said as what it is.
TEST_F(StoreTest, OneThatIsDamagedIsNamed) {
  const auto change = [&](const char* how) {
    sqlite3* file = nullptr;
    ASSERT_EQ(sqlite3_open((folder_ + "/jobs.sqlite").c_str(), &file), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(file, how, nullptr, nullptr, nullptr), SQLITE_OK) << how;
    sqlite3_close(file);
  };
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
    JobRecord one = record("one");
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
