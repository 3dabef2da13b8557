#include "weft/cli/talk/line_editor.h"

#include <dlfcn.h>
#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "weft/cli/talk/key_reader.h"

namespace weft::cli {

// The functions of libedit that are used. Found at run time: no verb without a terminal loads it.
struct Libedit {
  decltype(&::el_init) init = nullptr;
  decltype(&::el_end) end = nullptr;
  decltype(&::el_set) set = nullptr;
  decltype(&::el_get) get = nullptr;
  decltype(&::el_gets) gets = nullptr;
  decltype(&::el_resize) resize = nullptr;
  decltype(&::el_source) source = nullptr;
  decltype(&::el_line) line = nullptr;
  decltype(&::el_insertstr) insert = nullptr;
  decltype(&::history_init) history_init = nullptr;
  decltype(&::history_end) history_end = nullptr;
  decltype(&::history) history = nullptr;
  unsigned char (*complete_file)(EditLine*, int) = nullptr;
};

namespace {

constexpr int kMostRemembered = 1000;
constexpr char kPasteOn[] = "\033[?2004h";
constexpr char kPasteOff[] = "\033[?2004l";

template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

const Libedit* libedit() {
  static const Libedit* const found = []() -> const Libedit* {
    static Libedit own;
    void* const file = ::dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    const bool is_whole =
        file != nullptr && find_function(file, "el_init", own.init) &&
        find_function(file, "el_end", own.end) && find_function(file, "el_set", own.set) &&
        find_function(file, "el_get", own.get) && find_function(file, "el_gets", own.gets) &&
        find_function(file, "el_resize", own.resize) &&
        find_function(file, "el_source", own.source) && find_function(file, "el_line", own.line) &&
        find_function(file, "el_insertstr", own.insert) &&
        find_function(file, "history_init", own.history_init) &&
        find_function(file, "history_end", own.history_end) &&
        find_function(file, "history", own.history) &&
        find_function(file, "_el_fn_complete", own.complete_file);
    return is_whole ? &own : nullptr;
  }();
  return found;
}

volatile std::sig_atomic_t is_resized = 0;

void on_resize(int /*number*/) { is_resized = 1; }

// Text is UTF-8 whatever the machine's language is.
void choose_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

// What all words that begin like the text have behind it; a blank ends the only one.
std::string common_rest(const std::vector<std::string>& words, const std::string& text) {
  std::string common;
  size_t num_found = 0;
  for (const std::string& word : words) {
    if (!word.starts_with(text)) continue;
    if (num_found++ == 0) common = word + " ";
    const auto differ = std::mismatch(common.begin(), common.end(), word.begin(), word.end());
    if (num_found > 1) common.erase(differ.first, common.end());
  }
  return common.substr(std::min(common.size(), text.size()));
}

}  // namespace

struct LineEditor::Impl {
  const Libedit& library;
  KeyReader keys{STDIN_FILENO, [this] { obey_resize(); }};
  std::string prompt;
  std::string history_path;
  std::vector<std::string> words;
  EditLine* editor = nullptr;
  History* past = nullptr;
  HistEvent event = {};

  explicit Impl(const Libedit& found) : library(found) {}

  static Impl& of(EditLine* editor) {
    void* data = nullptr;
    libedit()->get(editor, EL_CLIENTDATA, &data);
    return *static_cast<Impl*>(data);
  }
  static char* show_prompt(EditLine* editor) { return of(editor).prompt.data(); }
  static int read_key(EditLine* editor, wchar_t* key) { return of(editor).keys.read(*key); }
  static unsigned char complete(EditLine* editor, int key) { return of(editor).complete_word(key); }

  // libedit reads its own window's size when it begins.
  void obey_resize() {
    if (is_resized == 0) return;
    is_resized = 0;
    library.resize(editor);
  }

  unsigned char complete_word(int key) {
    const LineInfo* const line = library.line(editor);
    const std::string typed(line->buffer, line->cursor);
    if (typed.empty() || typed[0] != '/') return CC_ERROR;
    if (typed.find(' ') != std::string::npos) return library.complete_file(editor, key);
    const std::string rest = common_rest(words, typed);
    if (rest.empty() || library.insert(editor, rest.c_str()) != 0) return CC_REFRESH_BEEP;
    return CC_REFRESH;
  }

  void open_editor() {
    editor = library.init("weft", stdin, stderr, stderr);
    library.set(editor, EL_CLIENTDATA, this);
    library.set(editor, EL_PROMPT, &show_prompt);
    library.set(editor, EL_EDITOR, "emacs");
    library.set(editor, EL_SIGNAL, 0);
    library.set(editor, EL_GETCFN, &read_key);
    library.set(editor, EL_ADDFN, "weft-complete", "completes commands and files", &complete);
    library.set(editor, EL_BIND, "^I", "weft-complete", nullptr);
    library.set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    library.source(editor, nullptr);  // the user's own ~/.editrc
  }

  void open_history() {
    past = library.history_init();
    library.history(past, &event, H_SETSIZE, kMostRemembered);
    library.history(past, &event, H_SETUNIQUE, 1);
    library.set(editor, EL_HIST, library.history, past);
    if (!history_path.empty()) library.history(past, &event, H_LOAD, history_path.c_str());
  }

  void keep_history() {
    if (history_path.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(history_path).parent_path(), error);
    // A history that can't be kept is no reason to fail.
    library.history(past, &event, H_SAVE, history_path.c_str());
  }
};

LineEditor::LineEditor() : impl_(std::make_unique<Impl>(*libedit())) {}

std::unique_ptr<LineEditor> LineEditor::open(const std::string& history_path,
                                             std::vector<std::string> words) {
  const bool has_terminal = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0;
  if (!has_terminal || libedit() == nullptr) return nullptr;
  choose_utf8();
  struct sigaction action = {};
  action.sa_handler = on_resize;
  ::sigaction(SIGWINCH, &action, nullptr);
  std::unique_ptr<LineEditor> opened(new LineEditor);
  opened->impl_->history_path = history_path;
  opened->impl_->words = std::move(words);
  opened->impl_->open_editor();
  opened->impl_->open_history();
  return opened;
}

LineEditor::~LineEditor() {
  impl_->library.history_end(impl_->past);
  impl_->library.end(impl_->editor);
}

ReadLine LineEditor::read(const std::string& prompt) {
  impl_->prompt = prompt;
  impl_->keys.begin_line();
  std::fputs(kPasteOn, stderr);
  std::fflush(stderr);
  // Before the prompt is shown, so that the terminal itself echoes nothing of what is typed then.
  impl_->library.set(impl_->editor, EL_PREP_TERM, 1);
  int count = 0;
  const char* const line = impl_->library.gets(impl_->editor, &count);
  ReadLine read;
  if (line != nullptr) read.text.assign(line, static_cast<size_t>(count));
  if (read.text.ends_with('\n')) read.text.pop_back();
  std::fputs(kPasteOff, stderr);
  std::fflush(stderr);
  read.end = impl_->keys.line_end();
  if (read.end == LineEnd::kTyped && line == nullptr) read.end = LineEnd::kEnd;
  if (read.end == LineEnd::kInterrupted) {
    const LineInfo* const typed = impl_->library.line(impl_->editor);
    read.text.assign(typed->buffer, typed->lastchar);
  }
  return read;
}

void LineEditor::remember(const std::string& text) {
  impl_->library.history(impl_->past, &impl_->event, H_ENTER, text.c_str());
  impl_->keep_history();
}

}  // namespace weft::cli
