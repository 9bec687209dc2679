#include "server/field_reader.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

// Returns the parameter named by a refusal, or "" for a valid request.
template <class Request>
std::string refused(const std::string& name, const Json& value) {
  const Json body{{name, value}};
  Fields fields(body, "request");
  Request request;
  try {
    visit_fields(request, FieldReader(fields, {{"timesteps", 3}, {"sigmas", 3}}));
    fields.finish();
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.status(), 400);
    return refusal.param();
  }
  return "";
}

// Gives every field of the table a valid value, a value outside the bounds and a value of another
// kind.
template <class Request>
void try_every_field() {
  Request unset;
  visit_fields(unset, [](const Field& field, auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    SCOPED_TRACE(field.name);
    const std::string name = field.name;
    if (!field.served) {
      EXPECT_EQ(refused<Request>(name, true), name);
      return;
    }
    EXPECT_EQ(refused<Request>(name, Json::object()), name);
    if (field.most > 0) {
      EXPECT_EQ(refused<Request>(name, int64_t(field.least)), "");
      EXPECT_EQ(refused<Request>(name, int64_t(field.most)), "");
      EXPECT_EQ(refused<Request>(name, int64_t(field.least) - 1), name);
      EXPECT_EQ(refused<Request>(name, int64_t(field.most) + 1), name);
      EXPECT_EQ(refused<Request>(name, "one"), name);
    } else if constexpr (std::is_same_v<Value, std::vector<double>>) {
      EXPECT_EQ(refused<Request>(name, {3, 2.5, 1}), "");
      EXPECT_EQ(refused<Request>(name, {4, 3, 2, 1}), name);
      EXPECT_EQ(refused<Request>(name, {"4"}), name);
    } else if constexpr (WordValue<Value>) {
      EXPECT_EQ(refused<Request>(name, "no such word"), name);
    } else {
      EXPECT_EQ(refused<Request>(name, -1.5), name);
    }
  });
}

}  // namespace

TEST(FieldReader, ReadsEveryFieldOfImages) { try_every_field<GenerateRequest>(); }
TEST(FieldReader, ReadsEveryFieldOfTexts) { try_every_field<CompleteRequest>(); }

TEST(FieldReader, KeepsToLimitsOfTheServer) {
  const Json body{{"steps", 7}};
  Fields fields(body, "request");
  GenerateRequest request;
  EXPECT_THROW(visit_fields(request, FieldReader(fields, {{"steps", 6}})), Refusal);
  visit_fields(request, FieldReader(fields, {{"steps", 7}}));
  EXPECT_EQ(request.steps, 7);
}

}  // namespace tessera::server
