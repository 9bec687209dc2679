#include "runtime/classes.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::runtime {
namespace {

const std::vector<std::string> kNames{"red circle", "blue star", "2"};

TEST(Classes, NamesAndNumbers) {
  EXPECT_EQ(class_numbers({"blue star", "0"}, kNames, 3), (std::vector<int>{1, 0}));
  EXPECT_EQ(class_numbers({"2"}, kNames, 3), (std::vector<int>{2}));
}

TEST(Classes, SaysWhatWasMeant) {
  try {
    class_numbers({"red circel"}, kNames, 3);
    FAIL() << "an unknown class was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'red circle'"), std::string::npos)
        << e.what();
  }
  for (const char* text : {"3", "-1", "", "1x", "99999999999999999999"})
    EXPECT_THROW(class_numbers({text}, {}, 3), Error) << text;
  EXPECT_THROW(class_numbers({}, kNames, 3), Error);
}

}  // namespace
}  // namespace tessera::runtime
