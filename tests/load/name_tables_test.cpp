#include "load/name_tables.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tessera::load {
namespace {

TEST(NameTables, IsFoundByTheClass) {
  EXPECT_STREQ(name_table_of("FluxTransformer2DModel")->family, "FLUX.1");
  EXPECT_STREQ(name_table_of("Flux2Transformer2DModel")->family, "FLUX.2");
  EXPECT_EQ(name_table_of("AutoencoderKLFlux2"), name_table_of("AutoencoderKL"));
  EXPECT_STREQ(name_table_of("Transformer2DModel")->family, "PixArt");
  EXPECT_EQ(name_table_of("CogVideoXTransformer3DModel"), nullptr);
}

// No two tables are for the same class, no two rules of a table for the same name, and shares are
// those of the names.
TEST(NameTables, SayEachThingOnce) {
  std::set<std::string> types;
  for (const NameTable* table : name_tables()) {
    SCOPED_TRACE(table->family);
    for (const char* type : table->types) EXPECT_TRUE(types.insert(type).second) << type;
    EXPECT_FALSE(table->marks.empty());
    std::set<std::string> names;
    for (const NameRule& rule : table->rules) {
      EXPECT_TRUE(names.insert(rule.file).second) << rule.file;
      EXPECT_FALSE(rule.model.empty());
      EXPECT_TRUE(rule.shares.empty() || rule.shares.size() == rule.model.size()) << rule.file;
      EXPECT_TRUE(rule.layout == Layout::same || rule.layout == Layout::experts ||
                  rule.model.size() == 1)
          << rule.file;
    }
  }
}

}  // namespace
}  // namespace tessera::load
