#include "server/image_fields.h"

#include <gtest/gtest.h>

#include "server/field_reader.h"
#include "server/openai.h"
#include "server/refusal.h"
#include "tessera/encodings.h"

namespace tessera::server {
namespace {

GenerateRequest read(const Json& request) {
  Fields fields(request, "request");
  GenerateRequest q;
  read_image_fields(fields, q);
  visit_fields(q, FieldReader(fields, {{"timesteps", 9}, {"sigmas", 9}}));
  fields.finish();
  return q;
}

std::string blamed(const std::function<void()>& f) {
  try {
    f();
  } catch (const Refusal& refusal) {
    return refusal.param();
  }
  return "nothing";
}

}  // namespace

TEST(ImageFields, AreRead) {
  const GenerateRequest q = read({{"image", {"YWI=", "Yw=="}},
                                  {"mask", "bQ=="},
                                  {"strength", 0.5},
                                  {"mask_soft", true},
                                  {"mask_blur", 2},
                                  {"image_fit", "crop"},
                                  {"outpaint", "1,2,3,4"}});
  ASSERT_EQ(q.images.size(), 2u);
  EXPECT_EQ(q.images[0].bytes, "ab");
  EXPECT_EQ(q.images[1].bytes, "c");
  EXPECT_EQ(q.mask->bytes, "m");
  EXPECT_EQ(q.strength, 0.5);
  EXPECT_TRUE(q.soft_mask);
  EXPECT_EQ(q.mask_blur, 2);
  EXPECT_EQ(q.image_fitting, ImageFitting::crop);
  EXPECT_EQ(q.outpaint.bottom, 4);
  EXPECT_EQ(read({{"image", "YWI="}}).images.size(), 1u);
}

TEST(ImageFields, BlameWhatIsWrong) {
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, Json>>{{"image", "a"},
                                                 {"image", ""},
                                                 {"image", 1},
                                                 {"image", {"YWI=", "?"}},
                                                 {"mask", "/etc/passwd"},
                                                 {"strength", 1.5},
                                                 {"mask_blur", -1},
                                                 {"image_fit", "x"},
                                                 {"outpaint", "1,2"},
                                                 {"mask_alpha", 1}})
    EXPECT_EQ(blamed([&] { read({{field, value}}); }), field) << value;
  EXPECT_EQ(blamed([] { read({{"image", std::vector<std::string>(17, "YWI=")}}); }), "image");
}

TEST(ImageFields, AreShownBySize) {
  const Json shown =
      without_images({{"prompt", "x"}, {"image", {"YWJj", "YWJj"}}, {"mask", "YWJj"}});
  EXPECT_EQ(shown, Json({{"prompt", "x"}, {"image", {"3 bytes", "3 bytes"}}, {"mask", "3 bytes"}}));
}

TEST(ImageFields, TellAlpha) {
  std::string png = "\x89PNG\r\n\x1a\n" + std::string(40, '\0');
  for (const int type : {0, 2, 3, 4, 6}) {
    png[25] = static_cast<char>(type);
    EXPECT_EQ(has_alpha(png), type >= 4) << type;
  }
  EXPECT_FALSE(has_alpha(""));
  EXPECT_FALSE(has_alpha("\x89PNG"));
  std::string webp = "RIFF....WEBPVP8X" + std::string(20, '\0');
  EXPECT_FALSE(has_alpha(webp));
  webp[20] = 0x10;
  EXPECT_TRUE(has_alpha(webp));
}

TEST(ImageFields, OfAFormAreThoseOfJson) {
  const Json body = json_of_form({{"prompt", false, "7"},
                                  {"image[]", true, "ab"},
                                  {"image[]", true, "c"},
                                  {"n", false, "2"},
                                  {"strength", false, "0.5"},
                                  {"mask_alpha", false, "true"},
                                  {"size", false, "64x64"}});
  EXPECT_EQ(body, Json({{"prompt", "7"},
                        {"image[]", {"YWI=", "Yw=="}},
                        {"n", 2},
                        {"strength", 0.5},
                        {"mask_alpha", true},
                        {"size", "64x64"}}));
  EXPECT_EQ(blamed([] { json_of_form({{"n", false, "1"}, {"n", false, "1"}}); }), "n");
  EXPECT_EQ(blamed([] { json_of_form({{"n", true, "1"}}); }), "n");
  EXPECT_EQ(blamed([] { json_of_form({{"prompt", false, "\xff"}}); }), "prompt");
  EXPECT_EQ(blamed([] { json_of_form({{"user", false, std::string(70000, 'x')}}); }), "user");
}

}  // namespace tessera::server
