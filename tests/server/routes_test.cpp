#include "server/routes.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

// The status of a refusal before the body is read, with the allowed methods.
std::pair<int, std::string> refused(const std::string& method, const std::string& path,
                                    const std::string& type = "application/json") {
  HttpRequest request;
  request.method = method;
  request.path = path;
  request.headers["content-type"] = type;
  try {
    check_address(request);
  } catch (const Refusal& refusal) {
    return {refusal.status(), refusal.allow()};
  }
  return {200, ""};
}

using Said = std::pair<int, std::string>;

TEST(Routes, EveryAddressHasItsMethods) {
  const std::string read = "GET, HEAD";
  const std::pair<const char*, std::string> all[] = {{"/", read},
                                                     {"/assets/page.js", read},
                                                     {"/jobs", read + ", POST"},
                                                     {"/jobs/x", read + ", DELETE"},
                                                     {"/jobs/x/events", read},
                                                     {"/jobs/x/results/0", read},
                                                     {"/models", read},
                                                     {"/status", read},
                                                     {"/metrics", read},
                                                     {"/healthz", read},
                                                     {"/readyz", read},
                                                     {"/v1/models", read},
                                                     {"/v1/models/x", read},
                                                     {"/v1/completions", "POST"},
                                                     {"/v1/chat/completions", "POST"},
                                                     {"/v1/images/edits", "POST"},
                                                     {"/v1/images/variations", "POST"},
                                                     {"/v1/images/generations", "POST"}};
  for (const auto& [path, methods] : all)
    for (const char* method : {"GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "get"}) {
      const bool has =
          (", " + methods + ",").find(", " + std::string(method) + ",") != std::string::npos;
      EXPECT_EQ(refused(method, path), has ? Said(200, "") : Said(405, methods)) << method << path;
    }
}

TEST(Routes, WhatIsNotThereIsSaidFirst) {
  for (const char* path : {"/v1/images/others", "/v1/embeddings", "/v1", "/v1/completions/",
                           "/nothing", "/jobsx", "/jobs/x/y", "/jobs/x/results", ""})
    for (const char* method : {"GET", "POST", "PUT"})
      EXPECT_EQ(refused(method, path, "multipart/form-data"), Said(404, "")) << method << path;
  EXPECT_EQ(refused("POST", "/models", "text/plain").first, 405);
  EXPECT_EQ(refused("POST", "/jobs", "text/plain").first, 415);
  EXPECT_EQ(refused("POST", "/jobs", "multipart/form-data; boundary=x").first, 415);
  EXPECT_EQ(refused("POST", "/v1/images/edits", "multipart/form-data; boundary=x").first, 200);
  EXPECT_EQ(refused("POST", "/v1/images/variations", "application/json").first, 200);
  EXPECT_EQ(refused("POST", "/v1/images/edits", "text/plain").first, 415);
  EXPECT_EQ(refused("POST", "/jobs", "Application/JSON ;charset=utf-8").first, 200);
  EXPECT_EQ(refused("GET", "/jobs", "").first, 200);
}

}  // namespace
}  // namespace tessera::server
