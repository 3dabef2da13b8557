#include "weft/cli/help/shell_completion.h"

#include <string_view>

namespace weft::cli {
namespace {

bool is_flag(const std::string& name) { return name.starts_with('-'); }

std::string names_of(const std::vector<VerbHelp>& verbs) {
  std::string names = "help";
  for (const VerbHelp& verb : verbs) names += " " + verb.name;
  return names;
}

// Each flag of a verb.
template <class Visit>
void for_each_flag(const VerbHelp& verb, const Visit& visit) {
  for (const HelpGroup& group : verb.groups) {
    for (const HelpFlag& flag : group.flags) visit(flag);
  }
}

// `text` with a backslash before each of `special`.
std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Within single quotes of a shell.
std::string shell_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string zsh_flag(const HelpFlag& flag, const std::string& name) {
  // Flags may be given several times as far as zsh is concerned.
  std::string spec = "*" + name + "[" + escaped(flag.about, "[]\\:") + "]";
  if (!flag.value.empty()) spec += ":" + flag.value + ":_files";
  return "      " + shell_word(spec) + " \\\n";
}

std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  const bool is_request = out.starts_with('.') || out.starts_with('\'');
  return (is_request ? "\\&" : "") + out;
}

std::string roff_flag(const HelpFlag& flag) {
  std::string names;
  for (const std::string& name : flag.names) {
    names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
  }
  if (!flag.value.empty()) names += " \\fI" + roff(flag.value) + "\\fR";
  return ".TP\n" + names + "\n" + roff(flag.about) + "\n";
}

}  // namespace

std::string bash_completion(const std::vector<VerbHelp>& verbs) {
  std::string text =
      "# Completion of weft for bash; made by `weft completion bash`.\n_weft() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} flags=\n"
      "  local verbs='" +
      names_of(verbs) +
      "'\n"
      "  if ((COMP_CWORD == 1)) || [[ $verb == help ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$verbs\" -- \"$word\")\n    return\n  fi\n"
      "  case $verb in\n";
  for (const VerbHelp& verb : verbs) {
    text += "    " + verb.name + ") flags='";
    for_each_flag(verb, [&](const HelpFlag& flag) {
      for (const std::string& name : flag.names) text += is_flag(name) ? name + " " : "";
    });
    text += "' ;;\n";
  }
  return text +
         "  esac\n  if [[ $word == -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$word\")\n  else\n"
         "    mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n  fi\n}\n"
         "complete -o filenames -F _weft weft\n";
}

std::string zsh_completion(const std::vector<VerbHelp>& verbs) {
  std::string text =
      "#compdef weft\n# Completion of weft for zsh; made by `weft completion zsh`.\n"
      "_weft() {\n  local -a verbs=(\n";
  for (const VerbHelp& verb : verbs) {
    text += "    " + shell_word(verb.name + ":" + escaped(verb.summary, ":\\")) + "\n";
  }
  text +=
      "    'help:show the verbs, or the flags of one'\n  )\n"
      "  if ((CURRENT == 2)) || [[ $words[2] == help ]]; then\n"
      "    _describe verb verbs\n    return\n  fi\n  case $words[2] in\n";
  for (const VerbHelp& verb : verbs) {
    text += "    " + verb.name + ") _arguments -S \\\n";
    for_each_flag(verb, [&](const HelpFlag& flag) {
      for (const std::string& name : flag.names) text += is_flag(name) ? zsh_flag(flag, name) : "";
    });
    text += "      '*:file:_files' ;;\n";
  }
  return text + "  esac\n}\n_weft \"$@\"\n";
}

std::string man_page(const std::vector<VerbHelp>& verbs, const std::string& version) {
  std::string text = ".TH WEFT 1 \"\" \"weft " + version +
                     "\" \"User Commands\"\n.SH NAME\nweft \\- splits transformer models over "
                     "processes\n.SH SYNOPSIS\n.B weft\n.I VERB\n.RI [ ARGUMENT ...]\n"
                     ".SH DESCRIPTION\nA flag beats its WEFT_* environment variable, which beats "
                     "the TOML file of \\fB\\-\\-config\\fR.\n.SH VERBS\n";
  for (const VerbHelp& verb : verbs) {
    text += ".SS " + roff(verb.usage) + "\n" + roff(verb.about) + "\n";
    for_each_flag(verb, [&](const HelpFlag& flag) { text += roff_flag(flag); });
  }
  return text +
         ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\na bug of weft's own\n.TP\n2\nan impossible "
         "request: flags, configuration, sizes\n.TP\n3\na file's bytes are wrong\n.TP\n4\na rank "
         "died, hung or disagrees\n.TP\n5\nthe system refused: disk, permission, memory\n";
}

}  // namespace weft::cli
