#include "tessera/run_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tessera/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class RunFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tessera-XXXXXX").string();
    folder_ = fs::canonical(mkdtemp(name.data()));
    fs::create_directories(folder_ / "model/vae");
    write("model/config.json", "{}");
    write("model/vae/weights", "w");
    write("in", "input");
    setenv("HF_HUB_CACHE", (folder_ / "hub").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("HF_HUB_CACHE");
    fs::remove_all(folder_);
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  size_t entries() const {
    return size_t(std::distance(fs::recursive_directory_iterator(folder_),
                                fs::recursive_directory_iterator()));
  }
  // The refusal, or "" if accepted. Leaves no new files behind.
  std::string refusal(const RunFiles& files) const {
    const size_t before = entries();
    std::string said;
    try {
      check_files(files);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      said = e.what();
    }
    EXPECT_EQ(entries(), before);
    return said;
  }
  std::string of_one(const std::string& path, FileKind kind = FileKind::report,
                     bool overwrite = false) const {
    return refusal({at("model"), {{"`in`", at("in")}}, {{"`out`", path, kind}}, overwrite});
  }
  static bool says(const std::string& said, const std::string& part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
    return true;
  }
  fs::path folder_;
};

TEST_F(RunFilesTest, AnInputIsNoOutputByAnyName) {
  fs::create_symlink("in", folder_ / "link");
  fs::create_symlink("link", folder_ / "longer");
  fs::create_hard_link(folder_ / "in", folder_ / "twin");
  fs::create_symlink(".", folder_ / "here");
  for (const char* name : {"in", "link", "longer", "twin", "here/in", "model/../in"})
    for (const bool overwrite : {false, true})
      says(of_one(at(name), FileKind::report, overwrite), "is the file of `in`");
  EXPECT_EQ(of_one(at("out")), "");
  says(refusal({"", {{"`in`", at("none")}}, {{"`out`", at("none")}}}), "is the file of `in`");
}

TEST_F(RunFilesTest, AModelsFolderTakesNoOutput) {
  fs::create_directories(folder_ / "elsewhere/inner");
  write("blob", "weights");
  fs::create_symlink("../blob", folder_ / "model/shard");
  fs::create_symlink("../elsewhere", folder_ / "model/transformer");
  fs::create_symlink("..", folder_ / "model/loop");
  fs::create_symlink("model", folder_ / "alias");
  fs::create_hard_link(folder_ / "model/vae/weights", folder_ / "twin");
  for (const char* name : {"model/config.json", "model/new", "model/vae/weights", "alias/new",
                           "model/vae/new", "blob", "elsewhere/new", "elsewhere/inner/new", "twin"})
    says(of_one(at(name)), "lies in the model's own folder");
  says(of_one(at("model/"), FileKind::image), "lies in the model's own folder");
  says(of_one(at("model/new/"), FileKind::image), "lies in the model's own folder");
  says(of_one(at("model/new"), FileKind::model), "lies in the model's own folder");
  EXPECT_EQ(of_one(at("out")), "");
  EXPECT_EQ(of_one(at("models")), "");
}

TEST_F(RunFilesTest, TheHubsCacheTakesNoOutput) {
  fs::create_directories(folder_ / "hub/models--a--b/blobs");
  write("hub/models--a--b/blobs/x", "x");
  for (const char* name : {"hub/x", "hub/models--a--b/blobs/x", "hub/models--a--b/y"})
    says(of_one(at(name)), "lies in the hub's cache");
}

TEST_F(RunFilesTest, NoTwoOutputsAreOneFile) {
  fs::create_symlink("x", folder_ / "nowhere");
  write("old", "");
  fs::create_symlink("old", folder_ / "link");
  const auto two = [&](const std::string& a, const std::string& b) {
    return refusal({"", {}, {{"`a`", a, FileKind::report}, {"`b`", b, FileKind::trace}}});
  };
  says(two(at("x"), at("model/../x")), "would be written twice");
  says(two(at("link"), at("old")), "would be written twice");
  says(two(at("x"), at("x/y")), "lies in a folder of that name");
  says(two(at("x/y"), at("x")), "lies in a folder of that name");
  EXPECT_EQ(two(at("x"), at("y")), "");
  EXPECT_EQ(two("/dev/null", "/dev/null"), "");
}

TEST_F(RunFilesTest, NumberedNamesAreTaken) {
  const auto beside = [&](const std::string& path, int64_t count, const std::string& other) {
    return refusal(
        {"", {}, {{"-o", path, FileKind::image, count}, {"`b`", other, FileKind::report}}});
  };
  says(beside(at("c.png"), 2, at("c-0001.png")), "a name that -o");
  says(beside(at("c.png"), 0, at("c-0007.png")), "a name that -o");
  EXPECT_EQ(beside(at("c.png"), 2, at("c-0002.png")), "");
  EXPECT_EQ(beside(at("c.png"), 1, at("c-0000.png")), "");
  EXPECT_EQ(beside(at("c.png"), 2, at("c-x.png")), "");
  says(beside(at("d/"), 1, at("d/0007.png")), "a name that -o");
  fs::create_directory(folder_ / "d");
  says(beside(at("d"), 1, at("d/12345.png")), "a name that -o");
  EXPECT_EQ(beside(at("d"), 1, at("d/report.json")), "");
  const RunFiles input{"", {{"`in`", at("c-0001.png")}}, {{"-o", at("c.png"), FileKind::image, 2}}};
  says(refusal(input), "is `in`, and this run reads it");
}

TEST_F(RunFilesTest, OnlyOutputsOfItsKindAreReplaced) {
  write("empty", "");
  EXPECT_EQ(of_one(at("empty")), "");
  write("notes", "mine");
  write("c-0001.png", "mine");
  for (const FileKind kind : {FileKind::image, FileKind::video, FileKind::report, FileKind::latents,
                              FileKind::trace, FileKind::tensors, FileKind::plan_costs}) {
    says(of_one(at("notes"), kind), "give `overwrite`");
    const std::string said = of_one(at("notes"), kind, true);
    EXPECT_TRUE(said.empty() || kind == FileKind::video) << said;  // needs an encoder
  }
  says(of_one(at("notes"), FileKind::chat), "exists");
  write("old.json", "{\n \"program\": \"Tessera\"\n}");
  EXPECT_EQ(of_one(at("old.json")), "");
  says(of_one(at("old.json"), FileKind::image), "no image that Tessera wrote");
  const auto several = [&](int64_t count) {
    return refusal({"", {}, {{"-o", at("c.png"), FileKind::image, count}}});
  };
  says(several(2), "c-0001.png' exists");
  EXPECT_EQ(several(1), "");
}

TEST_F(RunFilesTest, FoldersGoOnBehindTheirLastNumber) {
  EXPECT_EQ(next_number(at("d"), FileKind::image), 0u);
  fs::create_directories(folder_ / "d/video-0004");
  EXPECT_EQ(next_number(at("d"), FileKind::image), 0u);
  EXPECT_EQ(next_number(at("d"), FileKind::video), 5u);
  for (const char* name : {"d/0002.png", "d/0011.png", "d/99.png", "d/9999999999999999999.png"})
    write(name, "x");
  EXPECT_EQ(next_number(at("d/"), FileKind::image), 12u);
  EXPECT_EQ(numbered_name(at("d"), 12), at("d/0012.png"));
  EXPECT_EQ(numbered_name("c.png", 3), "c-0003.png");
  EXPECT_EQ(refusal({"", {}, {{"-o", at("d"), FileKind::image, 3}}}), "");
  says(refusal({"", {}, {{"-o", at("d"), FileKind::video, 1}}}), "holds frames already");
  EXPECT_EQ(refusal({"", {}, {{"-o", at("d"), FileKind::video, 2}}}), "");
}

TEST_F(RunFilesTest, AStoreHoldsNoInput) {
  const auto store = [&](const std::string& name) {
    return refusal({at("model"), {{"`keys`", at("in")}}, {{"`store`", at(name), FileKind::store}}});
  };
  EXPECT_EQ(store("new"), "");
  says(store("."), "lies in the folder of `store`");
  says(store("model/store"), "lies in the model's own folder");
}

}  // namespace
}  // namespace tessera
