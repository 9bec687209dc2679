#include "jinja/render.h"

#include <gtest/gtest.h>

#include "jinja/statement.h"
#include "tessera/error.h"

namespace tessera::jinja {
namespace {

TEST(TemplateRender, WritesWithinItsWork) {
  const Statements all =
      template_statements("a\n{{ x }}{% for i in range(3) %}{{ i }}{% endfor %}", "t");
  ValueDict values;
  values.set("x", "y");
  int line = 0;
  EXPECT_EQ(rendered(all, values, 0, {1000}, line), "a\ny012");
  EXPECT_EQ(line, 2);
  EXPECT_THROW(rendered(all, values, 0, {10}, line), Error);
}

}  // namespace
}  // namespace tessera::jinja
