#include "weft/serve/page/page.h"

#include <algorithm>

#include "weft/serve/page_files.h"

namespace weft::serve {
namespace {

constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for "
    "'script'; trusted-types 'none'";

std::string content_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

}  // namespace

std::optional<HttpAnswer> page_answer(std::string_view path) {
  constexpr std::string_view kFolder = "/page/";
  std::string_view name = "index.html";
  if (path.starts_with(kFolder)) {
    name = path.substr(kFolder.size());
  } else if (path != "/") {
    return std::nullopt;
  }
  const auto* const found = std::find_if(std::begin(kPageFiles), std::end(kPageFiles),
                                         [&](const PageFile& file) { return file.name == name; });
  if (found == std::end(kPageFiles)) return std::nullopt;
  HttpAnswer answer;
  answer.content_type = content_type(name);
  answer.body = found->text;
  answer.fields = {{"Content-Security-Policy", kPolicy},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"},
                   {"Cross-Origin-Opener-Policy", "same-origin"},
                   {"Cache-Control", "no-cache"}};
  return answer;
}

}  // namespace weft::serve
