#include "base/python_json.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/json.h"

namespace tessera::base {

TEST(PythonJson, FindsItsWords) {
  EXPECT_TRUE(has_python_numbers("[NaN]"));
  EXPECT_TRUE(has_python_numbers("[-Infinity]"));
  EXPECT_FALSE(has_python_numbers("[1, null]"));
}

TEST(PythonJson, ReplacesThemOutsideStrings) {
  EXPECT_EQ(without_python_numbers(R"({"NaN":NaN,"a\"Infinity":[-Infinity]})"),
            R"({"NaN":null,"a\"Infinity":[-1.7976931348623157e308]})");
  EXPECT_EQ(without_python_numbers("\"a\\"), "\"a\\");
}

TEST(PythonJson, ConfigsWithThemAreRead) {
  const Json json = parse_json(R"({"lambda_min_clipped": -Infinity, "x": NaN})", "config.json");
  EXPECT_EQ(json["lambda_min_clipped"].get<double>(), std::numeric_limits<double>::lowest());
  EXPECT_TRUE(json["x"].is_null());
}

}  // namespace tessera::base
