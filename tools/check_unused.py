#!/usr/bin/env python3
"""Finds public declarations that nothing but a test uses: python3 tools/check_unused.py [ROOT]

A class, enum or free function that a header in weft/ declares at namespace scope has to be named by code
in weft/, examples/ or bench/ besides its own declarations and definitions. Names are compared as words,
so that a name which several declarations share counts as used where one of them is. What programs of
one's own are meant to use, and weft itself does not, is listed in ALLOWED with the reason, and headers of
nothing else in ALLOWED_HEADERS. Prints file:line for each finding; exits with 1 if there is one.
"""

import collections
import pathlib
import re
import sys

import check_docs
from scan import cpp_scan

FOLDERS = ("weft", "examples", "bench")
SUFFIXES = (".h", ".cpp", ".cu", ".inc")
WORD = re.compile(r"[A-Za-z_]\w*")
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*", re.M)
# Code is indented wherever it calls or names something, so a name that begins a line or comes before its
# first parenthesis there is declared or defined.
DECLARED = re.compile(r"^((?:(?:enum )?(?:class|struct|union|enum) (?=\w+)|"
                      r"(?!using|typedef|return)(?=\w)[^\n;={}(]*?\b(?=\w+\()))\w+", re.M)

PROGRAMS = "for programs that link weft"
TESTS = "looks inside for tests"
ALLOWED = {
    "UnicodeClass": "its values are used without its name",
    "__launch_bounds__": "CUDA's, before the name of a kernel",
    "element_value": "part of the reference that tests hold kernels to",
    "has_device": "lets tests and programs go on without a GPU",
    "known_patterns": TESTS,
    "language_model_loss": PROGRAMS,
    "merge_lora": PROGRAMS,
    "parallel_embedding_from_pretrained": PROGRAMS,
    "put_in_panels": "makes the panels of a model in memory, which tests compare with a loaded one's",
    "quantized_all_to_sharded_linear": PROGRAMS,
    "quantized_sharded_to_all_linear": PROGRAMS,
    "save_checkpoint": PROGRAMS,
    "select_microscaled": PROGRAMS,
    "slice_affine": PROGRAMS,
    "slice_microscaled": PROGRAMS,
    "unmerge_lora": PROGRAMS,
    "unshard_inplace": PROGRAMS,
}
ALLOWED_HEADERS = {
    "weft/dist/model_parallel_state.h",  # Other libraries' names,
    "weft/ops/model_parallel_regions.h",  # for programs that were written with them.
}


def code_files(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path


def code_of(text):
    """`text` without comments, literals, includes and the names that it declares or defines."""
    return DECLARED.sub(r"\1 ", INCLUDE.sub(" ", cpp_scan.TOKEN.sub(" ", text)))


def count_words(root):
    counts = collections.Counter()
    for path in code_files(root):
        counts.update(WORD.findall(code_of(path.read_text())))
    return counts


def unused(root):
    """(path, declaration, its name without scopes) of each."""
    counts = count_words(root)
    for path in sorted((root / "weft").rglob("*.h")):
        if str(path.relative_to(root)) in ALLOWED_HEADERS:
            continue
        for found in cpp_scan.scan(path.read_text()):
            name = found.name.split("::")[-1].split("<")[0].strip()
            is_checked = found.kind in check_docs.DOCUMENTED and check_docs.is_public(found)
            if is_checked and not check_docs.is_macro_call(found) and counts[name] == 0:
                yield path.relative_to(root), found, name


def findings(root):
    found = {name: f"{path}:{declaration.line}: {declaration.kind} {name}"
             for path, declaration, name in unused(root)}
    for name, what in found.items():
        if name not in ALLOWED:
            yield f"{what} is used by tests alone; delete it, or give a reason in tools/check_unused.py"
    headers = {path: path.read_text() for path in sorted((root / "weft").rglob("*.h"))}
    for name in sorted(ALLOWED.keys() - found.keys()):
        for path in [path for path, text in headers.items() if re.search(rf"\b{name}\(", text)][:1]:
            yield f"{path.relative_to(root)}: {name} is used; remove it from ALLOWED in tools/check_unused.py"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    lines = list(findings(root))
    for text in lines:
        print(text)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
