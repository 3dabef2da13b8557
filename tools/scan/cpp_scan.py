"""Finds the declarations of a C++ file: enough of the grammar for the size and documentation checks.

Not a parser: it follows braces and semicolons after comments, strings and preprocessor lines are
blanked out. Good for code in this project's format, which clang-format enforces.
"""

import dataclasses
import re

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.S,
)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
ACCESS = re.compile(r"\b(public|private|protected)\s*:(?!:)")
CONTAINER = re.compile(r"^(?:inline\s+)?(?:(namespace)|extern)\b")
TYPE = re.compile(r"^(?:typedef\s+)?(class|struct|union|enum)\b")
CONTROL = re.compile(r"^(?:else|do|try|if|for|while|switch|catch|return)\b")
SKIPPED_CALLS = {"alignas", "decltype", "noexcept", "requires", "__attribute__", "explicit"}


@dataclasses.dataclass
class Declaration:
    kind: str  # namespace, class, struct, union, enum or function
    name: str
    head: str  # its text up to the body or semicolon, spaces joined
    line: int  # first line, one-based
    scope: tuple  # the (kind, name) of what it lies in
    last_line: int = 0
    has_body: bool = False
    num_params: int = 0


def blank(text):
    """`text` without comments, literals and preprocessor lines; every character keeps its place."""

    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group())

    def literal(match):
        found = match.group()
        return spaces(match) if found.startswith("/") else '"' + spaces(match)[2:] + '"'

    return ACCESS.sub(spaces, PREPROCESSOR.sub(spaces, TOKEN.sub(literal, text)))


def matching(text, start, opening, closing):
    """Index just after the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if depth == 0:
            return i + 1
    return len(text)


def without_template(head):
    while head.startswith("template"):
        start = head.find("<")
        if start < 0:
            break
        head = head[matching(head, start, "<", ">"):].lstrip()
    return re.sub(r"^(\[\[[^\]]*\]\]\s*)+", "", head)


def parameter_list(head):
    """(name, text between the parentheses) of a function's head, or None if it has none."""
    position = 0
    while (start := head.find("(", position)) >= 0:
        end = matching(head, start, "(", ")")
        before = re.search(r"(operator\s*\S+|~?[\w:]+(?:<[^()]*>)?)\s*$", head[:start])
        name = before.group(1) if before else ""
        if head[:start].rstrip().endswith("operator"):
            start, name = end, "operator()"
            end = matching(head, start, "(", ")")
        if name and name not in SKIPPED_CALLS:
            return name, head[start + 1:end - 1]
        position = end
    return None


def count_parameters(text):
    depth, commas = 0, 0
    for character in text:
        depth += (character in "(<[{") - (character in ")>]}")
        commas += character == "," and depth == 0
    return 0 if text.strip() in ("", "void") else commas + 1


def is_assigned(head):
    """True if `=` stands outside all brackets: an initializer, not a function."""
    if re.search(r"\boperator\b", head):
        return False
    depth = 0
    for i, character in enumerate(head):
        depth += (character in "([{") - (character in ")]}")
        if character == "=" and depth == 0:
            return not re.match(r"=\s*(0|default|delete)\s*$", head[i:])
    return False


def function_of(head, line, scope):
    if is_assigned(head) or re.match(r"(using|typedef|static_assert|friend|return)\b", head):
        return None
    found = parameter_list(head)
    if found is None:
        return None
    return Declaration("function", found[0], head, line, scope,
                       num_params=count_parameters(found[1]))


def opens_body(head):
    """True if a `{` after `head` begins a function's body and not a braced initializer."""
    ends = re.search(r"(\)|\}|\b(const|noexcept|override|final|mutable|try)|&)\s*$", head)
    return bool(ends) or re.search(r"\)[\s\w]*->[^;{}]*$", head) is not None


def classify(head, line, scope):
    """What a `{` after `head` opens: a Declaration, or None for a block or an initializer."""
    bare = without_template(head)
    if CONTAINER.match(bare):
        name = re.sub(r"^(inline\s+)?(namespace|extern)\s*", "", bare).strip()
        return Declaration("namespace", name, head, line, scope)
    kind = TYPE.match(bare)
    if kind and not opens_body(bare):
        name = re.match(r"(?:\w+\s+)*?(?:class|struct|union|enum)(?:\s+class|\s+struct)?"
                        r"(?:\s+alignas\([^)]*\)|\s+\[\[[^\]]*\]\])*\s*([\w:]*)", bare)
        return Declaration(kind.group(1), name.group(1) if name else "", head, line, scope)
    if opens_body(bare):
        return function_of(bare, line, scope)
    return None


class Scanner:
    def __init__(self, text):
        self.text = blank(text)
        self.found = []
        self.stack = []  # a Declaration, or None for an initializer or block
        self.start = 0  # where the statement that is being read begins

    def line_at(self, index):
        return self.text.count("\n", 0, index) + 1

    def head(self, end):
        raw = self.text[self.start:end]
        skipped = len(raw) - len(raw.lstrip())
        return " ".join(raw.split()), self.line_at(self.start + skipped)

    def scope(self):
        return tuple((opened.kind, opened.name) for opened in self.stack if opened)

    def inside_code(self):
        return any(opened is None or opened.kind in ("function", "enum") for opened in self.stack)

    def open_brace(self, index):
        head, line = self.head(index)
        opened = None if self.inside_code() else classify(head, line, self.scope())
        if opened:
            opened.has_body = True
            self.found.append(opened)
            self.start = index + 1
        self.stack.append(opened)

    def close_brace(self, index):
        opened = self.stack.pop() if self.stack else None
        if opened:
            opened.last_line = self.line_at(index)
            self.start = index + 1

    def semicolon(self, index):
        if not self.inside_code():
            head, line = self.head(index)
            declared = function_of(without_template(head), line, self.scope())
            if declared:
                declared.last_line = self.line_at(index)
                self.found.append(declared)
            self.start = index + 1

    def run(self):
        parentheses = 0
        for match in re.finditer(r"[(){};]", self.text):
            character, index = match.group(), match.start()
            parentheses += (character == "(") - (character == ")")
            if character == "{":
                self.open_brace(index)
            elif character == "}":
                self.close_brace(index)
            elif character == ";" and parentheses == 0:
                self.semicolon(index)
        return self.found


def scan(text):
    """All declarations outside function bodies, in order."""
    return Scanner(text).run()
