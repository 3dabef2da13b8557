#include "weft/train/data/documents.h"

#include <gtest/gtest.h>

#include "tests/train/data/data_files.h"

namespace weft::train {
namespace {

using core::ConfigError;
using core::FormatError;
using text::message_of;

struct Read {
  std::vector<std::string> texts;
  std::vector<std::string> places;
  /// As texts, but parts of one document together.
  std::vector<std::string> documents;
  uint64_t hash = 0;
  uint64_t bytes = 0;
};

Read read_all(const std::vector<std::string>& paths, TextFiles kind = TextFiles::kOneDocument,
              size_t part_bytes = kTextPartBytes) {
  DocumentReader reader(paths, kind, part_bytes);
  Read read;
  Document document;
  while (reader.next(document)) {
    const auto& part = std::get<TextPart>(document.content);
    read.texts.push_back(part.text);
    if (part.is_first) {
      read.documents.emplace_back();
      read.places.push_back(document.where);
    }
    read.documents.back() += part.text;
  }
  read.hash = reader.hash();
  read.bytes = reader.bytes_read();
  return read;
}

std::vector<std::string> cut(std::string_view bytes, TextFiles kind) {
  const TemporaryFolder folder;
  return read_all({folder.write("a.txt", bytes)}, kind).documents;
}

std::string error_of(const std::string& name, std::string_view bytes) {
  const TemporaryFolder folder;
  const std::string path = folder.write(name, bytes);
  const std::string message = message_of<FormatError>([&] {
    DocumentReader reader({path}, TextFiles::kOneDocument);
    Document document;
    while (reader.next(document)) {
    }
  });
  return message.substr(std::min(message.size(), path.size() - name.size()));
}

using Texts = std::vector<std::string>;

TEST(Documents, OfATextFileAreTheWholeFileByteForByte) {
  EXPECT_EQ(cut("a b\r\n\n\fc\n\n", TextFiles::kOneDocument), Texts{"a b\r\n\n\fc\n\n"});
  EXPECT_EQ(cut("", TextFiles::kOneDocument), Texts{});
  EXPECT_EQ(cut("\xEF\xBB\xBFx", TextFiles::kOneDocument), Texts{"x"});
}

TEST(Documents, OfATextFileAreParagraphsOnRequest) {
  EXPECT_EQ(cut("\n\na\nb\n \t\n\nc\r\n\r\nd", TextFiles::kBlankLines), (Texts{"a\nb", "c", "d"}));
}

TEST(Documents, OfATextFileAreCutAtFormFeedsOnRequest) {
  EXPECT_EQ(cut("\f\fa\n\nb\fc\n\fd\n", TextFiles::kFormFeeds), (Texts{"a\n\nb", "c", "d"}));
  // Pages without text are none.
  EXPECT_EQ(cut("\r\n\fa\n\f\n\fb\f\n", TextFiles::kFormFeeds), (Texts{"a", "b"}));
}

TEST(Documents, OfATextFileAreLinesOnRequest) {
  EXPECT_EQ(cut("a b\n\n c\r\nd", TextFiles::kLines), (Texts{"a b", " c", "d"}));
}

TEST(Documents, SayWhereTheyBegin) {
  const TemporaryFolder folder;
  const std::string text = folder.write("a.txt", "\na\nb\n\nc\n");
  const std::string lines = folder.write("b.jsonl", "\n{\"text\":\"x\"}\n  \n{\"text\":\"y\"}");
  EXPECT_EQ(read_all({text, lines}, TextFiles::kBlankLines).places,
            (Texts{text + ":2", text + ":5", lines + ":2", lines + ":4"}));
}

TEST(Documents, ThatAreLongComeInPartsThatTogetherAreTheWhole) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += core::join("word", i, i % 7 == 0 ? "\n" : " ");
  // A line that is longer than a part, and one without spaces.
  text += "\n" + std::string(500, 'x') + "\xC3\xA9" + std::string(900, 'y') + "\n  end\n";
  const TemporaryFolder folder;
  const std::string path = folder.write("a.txt", text);
  for (const size_t part_bytes : {8, 9, 10, 11, 64, 1000, 100'000}) {
    const Read read = read_all({path}, TextFiles::kOneDocument, part_bytes);
    EXPECT_EQ(read.documents, Texts{text}) << part_bytes;
    EXPECT_EQ(read.texts.size() > 1, part_bytes < text.size());
    for (const std::string& part : read.texts) {
      EXPECT_LE(part.size(), 5 * part_bytes + 8) << part_bytes;
    }
    const Read lines = read_all({path}, TextFiles::kLines, part_bytes);
    EXPECT_EQ(lines.documents.size(), 3000 / 7 + 4U) << part_bytes;
  }
}

TEST(Documents, AreHashedWithTheirFilesBytesWhateverTheParts) {
  const TemporaryFolder folder;
  const std::string text = folder.write("a.txt", std::string(3'000'001, 'a') + "\nb");
  const std::string lines = folder.write("b.jsonl", "{\"text\":\"x\"}\n");
  const uint64_t hash = hash_sources({text, lines});
  EXPECT_EQ(read_all({text, lines}).hash, hash);
  EXPECT_EQ(read_all({text, lines}, TextFiles::kLines, 1000).hash, hash);
  EXPECT_EQ(read_all({text, lines}).bytes, 3'000'003U + 13U);
  EXPECT_NE(hash_sources({lines, text}), hash);
  folder.write("b.jsonl", "{\"text\":\"y\"}\n");
  EXPECT_NE(hash_sources({text, lines}), hash);
}

TEST(Documents, OfJsonLinesHaveThreeForms) {
  const auto text = parse_json_document(R"({"id":1,"text":"a\nb"})", "f:1");
  EXPECT_EQ(std::get<TextPart>(text.content).text, "a\nb");
  const auto pair = parse_json_document(R"({"prompt":"p","completion":"c"})", "f:2");
  EXPECT_EQ(std::get<Completion>(pair.content).prompt, "p");
  EXPECT_EQ(std::get<Completion>(pair.content).completion, "c");
  const auto chat = parse_json_document(
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})", "f:3");
  EXPECT_EQ(std::get<Conversation>(chat.content).messages.at(1).content, "a");
  EXPECT_EQ(chat.where, "f:3");
}

TEST(Documents, NameTheLineThatIsWrong) {
  EXPECT_EQ(error_of("c.jsonl", "{\"text\":\"a\"}\n\n{\"body\":\"b\",\"id\":1}\n"),
            "c.jsonl:3: expected one of \"text\", \"messages\", or \"prompt\" with \"completion\", "
            "got the keys 'body', 'id'; rename the key that holds the text");
  EXPECT_EQ(error_of("c.jsonl", "{\"text\":3}"), "c.jsonl:1: text: expected a string, got 3");
  EXPECT_EQ(error_of("c.jsonl", "[1]"),
            "c.jsonl:1: expected an object with \"text\", \"messages\", or \"prompt\" with "
            "\"completion\", got array; write one JSON object per line");
  EXPECT_EQ(error_of("c.jsonl", "{\"prompt\":\"p\"}"), "c.jsonl:1: missing key \"completion\"");
  EXPECT_EQ(error_of("c.jsonl", "{\"prompt\":\"p\",\"completion\":\"\"}"),
            "c.jsonl:1: completion: expected text, got none; remove the line");
  EXPECT_EQ(error_of("c.jsonl", "{\"text\":\"a\",\"messages\":[]}"),
            "c.jsonl:1: expected one of \"text\", \"messages\", or \"prompt\" with \"completion\", "
            "got the keys 'messages', 'text'; rename the key that holds the text");
  EXPECT_EQ(error_of("c.jsonl", "\n{\"text\":\"a\"\n").substr(0, 30),
            "c.jsonl:2: not valid JSON at b");
  EXPECT_EQ(error_of("c.jsonl", "{\"text\":\"\xFF\"}").substr(0, 28),
            "c.jsonl:1: not valid JSON at");
}

TEST(Documents, NameTheMessageThatIsWrong) {
  EXPECT_EQ(error_of("c.jsonl", R"({"messages":{}})"),
            "c.jsonl:1: messages: expected a list, got object; write [{\"role\": …, \"content\": "
            "…}, …]");
  EXPECT_EQ(error_of("c.jsonl", R"({"messages":[{"role":"user","content":"a"}]})"),
            "c.jsonl:1: messages: expected one of role assistant, got none; only answers are "
            "learned, so remove the line");
  EXPECT_EQ(error_of("c.jsonl", R"({"messages":["a"]})"),
            "c.jsonl:1: messages[0]: expected an object with role and content, got string; write "
            "[{\"role\": …, \"content\": …}, …]");
  EXPECT_EQ(error_of("c.jsonl", R"({"messages":[{"role":"assistant","content":null}]})"),
            "c.jsonl:1: messages[0]: content: expected a string, got null");
  EXPECT_EQ(error_of("c.jsonl", R"({"messages":[{"role":"assistant","content":""}]})"),
            "c.jsonl:1: messages[0]: content: expected text, got none; remove the line");
  EXPECT_EQ(
      error_of("c.jsonl", R"({"messages":[{"role":"assistant","content":"","tool_calls":[]}]})"),
      "c.jsonl:1: messages[0]: tool_calls: expected role and content alone; write the call "
      "into content");
}

TEST(Documents, NameTheLineOfATextThatIsNotUtf8) {
  EXPECT_EQ(error_of("a.txt", "ok\ncaf\xE9\n"),
            "a.txt:2: expected UTF-8, got the byte 233; convert the file, e.g. iconv -f latin1 -t "
            "utf-8");
}

TEST(Documents, RefuseJsonLinesWithoutEnd) {
  const std::string huge = "{\"text\":\"a\"}\n\"" + std::string(kMaxJsonLine, 'x');
  EXPECT_EQ(error_of("c.jsonl", huge),
            "c.jsonl:2: expected a line of at most 67108864 bytes, got a longer one; split the "
            "document");
}

TEST(Documents, RefuseFilesOfOtherKindsBeforeReadingAny) {
  const TemporaryFolder folder;
  const std::string text = folder.write("a.txt", "a");
  EXPECT_EQ(message_of<ConfigError>([&] {
              DocumentReader({text, "b.parquet"}, {});
            }),
            "'b.parquet': expected a name that ends in .txt, .text, .md, .jsonl or .ndjson; "
            "convert the file or rename it");
  EXPECT_EQ(message_of<ConfigError>([&] { DocumentReader({}, {}); }),
            "training data: expected at least one file, got none; name .txt or .jsonl files");
  EXPECT_EQ(message_of<FormatError>([&] {
              check_sources({text, folder.path("no.txt")});
            }),
            folder.path("no.txt") + ": no such file; check the path");
  EXPECT_EQ(check_sources({text, text}), 2U);
}

TEST(Documents, OfAFolderAreInItsFilesByName) {
  const TemporaryFolder folder, empty;
  const std::string b = folder.write("b.txt", "b");
  folder.write("a.jsonl", "{}");
  folder.write("notes.pdf", "x");
  std::filesystem::create_directory(folder.path("c.txt"));
  EXPECT_EQ(list_sources({"x.txt", folder.path(""), b}),
            (Texts{"x.txt", folder.path("a.jsonl"), folder.path("b.txt"), b}));
  EXPECT_EQ(message_of<ConfigError>([&] { list_sources({empty.path("")}); }),
            empty.path("") +
                ": expected files that end in .txt, .text, .md, .jsonl or .ndjson, got a folder "
                "without; name files or another folder");
}

}  // namespace
}  // namespace weft::train
