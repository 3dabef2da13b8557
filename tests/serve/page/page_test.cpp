// The chat page: its files and their header fields. browser.py uses it as people do.
#include "weft/serve/page/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>

#include "tests/cli/processes.h"
#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "weft/serve/api/access.h"
#include "weft/serve/api/api_error.h"

namespace weft::serve {
namespace {

std::string field(const HttpAnswer& answer, const std::string& name) {
  const auto found = std::find_if(answer.fields.begin(), answer.fields.end(),
                                  [&](const auto& each) { return each.first == name; });
  return found == answer.fields.end() ? "" : found->second;
}

// What a file of the page loads: files of the page, by their paths.
std::vector<std::string> loaded_by(const std::string& text) {
  static const std::regex kLoads(R"#((?:src|href)="([^"#][^"]*)"|from "\./([^"]+)")#");
  std::vector<std::string> paths;
  for (std::sregex_iterator each(text.begin(), text.end(), kLoads), end; each != end; ++each) {
    paths.push_back((*each)[1].matched ? (*each)[1].str() : "/page/" + (*each)[2].str());
  }
  return paths;
}

TEST(Page, LoadsItsOwnFilesAlone) {
  std::vector<std::string> paths = {"/"};
  for (size_t i = 0; i < paths.size(); ++i) {
    SCOPED_TRACE(paths[i]);
    const auto answer = page_answer(paths[i]);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(field(*answer, "Content-Security-Policy")
                  .rfind("default-src 'none'; script-src 'self';", 0),
              0U);
    EXPECT_EQ(field(*answer, "X-Content-Type-Options"), "nosniff");
    for (const std::string& path : loaded_by(answer->body)) {
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
    }
    for (const char* refused : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                                "eval(", "style=", "onclick=", "@import", "url("}) {
      EXPECT_EQ(answer->body.find(refused), std::string::npos) << refused;
    }
  }
  EXPECT_EQ(paths.size(), 8U);
  EXPECT_FALSE(page_answer("/page/").has_value());
  EXPECT_FALSE(page_answer("/page/../secret").has_value());
  EXPECT_FALSE(page_answer("/index.html").has_value());
}

TEST(Page, HasScriptsThatParse) {
  if (weft::test::run_command({"sh", "-c", "command -v node"}).status != 0)
    GTEST_SKIP() << "no node";
  const testing::TempDir dir;
  for (const char* name : {"page", "view", "store", "client", "markdown"}) {
    const std::string file = dir.write(std::string(name) + ".mjs",
                                       page_answer(std::string("/page/") + name + ".js")->body);
    const auto result = weft::test::run_command({"node", "--check", file});
    EXPECT_EQ(result.status, 0) << result.err;
  }
}

TEST(Page, OfThisServerMayAskAndOthersMayNot) {
  HttpRequest request;
  request.host = "127.0.0.1:8080";
  request.origin = "http://127.0.0.1:8080";
  EXPECT_NO_THROW(check_access(request, {}, false));
  for (const char* origin : {"http://127.0.0.1:8081", "http://example.org", "null"}) {
    request.origin = origin;
    EXPECT_THROW(check_access(request, {}, false), ApiError) << origin;
  }
}

TEST(Page, IsThereUnlessItIsTurnedOff) {
  for (const bool is_off : {false, true}) {
    std::vector<std::string> command = {"serve", "--port", "0", "--alias", "model"};
    if (is_off) command.push_back("--no-page");
    const std::string port = cli::free_port();
    command[2] = port;
    weft::test::BackgroundCommand server(cli::weft_command(command), cli::with_model());
    ASSERT_TRUE(server.wait_for_output("weft serve: model on http://127.0.0.1:" + port + "/v1"));
    const std::string code =
        "import urllib.request as r, urllib.error as e\n"
        "try: print(r.urlopen('http://127.0.0.1:" +
        port +
        "/').headers['Content-Type'])\n"
        "except e.HTTPError as error: print(error.code)\n";
    EXPECT_EQ(weft::test::run_command({"python3", "-c", code}).out,
              is_off ? "404\n" : "text/html; charset=utf-8\n");
  }
}

}  // namespace
}  // namespace weft::serve
