#include "server/page_files.h"

#include "server/header_values.h"
#include "server/page.h"

namespace tessera::server {

HttpReply page_file(const HttpRequest& request) {
  const bool root = request.path == "/";
  const std::string name =
      root ? "index.html" : request.path.substr(std::string("/assets/").size());
  const PageFile* file = !root && name == "index.html" ? nullptr : find_page_file(name);
  if (!file) throw not_found("the page has no file '" + name.substr(0, 100) + "'");
  HttpReply reply;
  reply.type = file->type;
  reply.headers = {{"Content-Security-Policy", std::string(kPagePolicy)},
                   {"Cache-Control", "no-cache"},
                   {"ETag", std::string(file->tag)},
                   {"Referrer-Policy", "no-referrer"}};
  if (names_tag(request.header("if-none-match"), std::string(file->tag)))
    reply.status = 304;
  else
    reply.body = file->content;
  return reply;
}

}  // namespace tessera::server
