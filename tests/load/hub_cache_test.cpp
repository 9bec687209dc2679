#include "load/hub_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "tessera/error.h"

namespace tessera::load {
namespace {

namespace fs = std::filesystem;

class HubCache : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tessera_hub_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    cache_ = pattern;
    repository_ = cache_ / "models--maker--a.model-1";
    fs::create_directories(repository_ / "snapshots/old1");
    fs::create_directories(repository_ / "snapshots/new2");
    fs::last_write_time(repository_ / "snapshots/old1",
                        fs::last_write_time(cache_) - std::chrono::hours(1));
  }
  void TearDown() override { fs::remove_all(cache_); }
  void main_is(const std::string& revision) const {
    fs::create_directories(repository_ / "refs");
    std::ofstream(repository_ / "refs/main") << revision;
  }
  std::string found(const std::string& id = "maker/a.model-1") const {
    return fs::path(cached_snapshot(cache_.string(), id)).filename().string();
  }
  fs::path cache_, repository_;
};

TEST_F(HubCache, TakesWhatMainNames) {
  main_is("old1\n");
  EXPECT_EQ(found(), "old1");
}

TEST_F(HubCache, TakesTheNewestWhereMainNamesNothing) {
  EXPECT_EQ(found(), "new2");
  for (const char* revision : {"gone3", "", "../../..", "../snapshots/old1"}) {
    main_is(revision);
    EXPECT_EQ(found(), "new2") << revision;
  }
}

TEST_F(HubCache, AMainThatIsNoFileIsNamed) {
  fs::create_directories(repository_ / "refs/main");
  try {
    found();
    ADD_FAILURE() << "was taken for missing";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    EXPECT_NE(std::string(e.what()).find("refs/main': it is a folder"), std::string::npos);
  }
}

TEST_F(HubCache, HasNothingElse) {
  for (const char* id : {"maker/another", "maker", "/a.model-1", "maker/../a", "maker/a/b", "../x"})
    EXPECT_EQ(found(id), "") << id;
  EXPECT_EQ(cached_snapshot("", "maker/a.model-1"), "");
}

TEST(RepositoryId, IsAnOrganisationAndAName) {
  for (const char* id : {"black-forest-labs/FLUX.1-dev", "THUDM/CogVideoX-2b", "a/b_c"})
    EXPECT_TRUE(is_repository_id(id)) << id;
  for (const char* id : {"shapes", "a/", "/b", "./b", "../b", "a/b/c", "a/..", "a b/c", "a/-b"})
    EXPECT_FALSE(is_repository_id(id)) << id;
}

TEST(HubCachePlace, FollowsTheVariables) {
  const char* const names[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME",
                               "HOME"};
  const char* const places[] = {"/1", "/5", "/2/hub", "/3/huggingface/hub",
                                "/4/.cache/huggingface/hub"};
  const char* const values[] = {"/1", "/5", "/2", "/3", "/4"};
  std::map<std::string, std::string> before;
  for (const char* name : names)
    if (const char* value = std::getenv(name)) before[name] = value;
  for (int i = 4; i >= 0; --i) {
    for (int j = 0; j < 5; ++j) j < i ? unsetenv(names[j]) : setenv(names[j], values[j], 1);
    EXPECT_EQ(hub_cache(), places[i]);
  }
  for (const char* name : names) unsetenv(name);
  EXPECT_EQ(hub_cache(), "");
  for (const auto& [name, value] : before) setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace
}  // namespace tessera::load
