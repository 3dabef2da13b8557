#!/usr/bin/env python3
"""API pages of the public headers: python3 tools/make_api_pages.py [ROOT] [-o FOLDER]

Public are the headers that weft/<area>.h reach, which is also what is installed. Doxygen reads their
comments; without -o the pages are only checked. Prints file:line for each of Doxygen's warnings; exits
with 1 if there is one. Open FOLDER/html/index.html afterwards.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

INCLUDE = re.compile(r'^#include "(weft/.*)"$', re.MULTILINE)

# Comments are plain sentences, so nothing asks for \param or \return; what has no comment of its own
# stands beside what has one.
SETTINGS = """
PROJECT_NAME = weft
PROJECT_BRIEF = "splits transformer models over processes"
INPUT = {inputs}
OUTPUT_DIRECTORY = "{folder}"
STRIP_FROM_PATH = .
STRIP_FROM_INC_PATH = .
EXTRACT_ALL = YES
HIDE_UNDOC_RELATIONS = YES
EXCLUDE_SYMBOLS = *::detail
JAVADOC_AUTOBRIEF = YES
BUILTIN_STL_SUPPORT = YES
SORT_MEMBER_DOCS = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = "TORCH_MODULE(Name)=class Name : public torch::nn::ModuleHolder<Name##Impl> {{}};"
HAVE_DOT = NO
GENERATE_LATEX = NO
VERBATIM_HEADERS = NO
QUIET = YES
WARN_FORMAT = "$file:$line: $text"
"""


def public_headers(root):
    waiting = sorted(path.relative_to(root).as_posix() for path in (root / "weft").glob("*.h"))
    found = []
    while waiting:
        header = waiting.pop(0)
        if header not in found and (root / header).exists():
            found.append(header)
            waiting += INCLUDE.findall((root / header).read_text())
    return found


def make_pages(root, folder):
    """Doxygen's warnings, a line each."""
    inputs = " ".join(f'"{header}"' for header in public_headers(root))
    done = subprocess.run(["doxygen", "-"], input=SETTINGS.format(inputs=inputs, folder=folder), cwd=root,
                          capture_output=True, text=True, check=False)
    lines = done.stderr.replace(f"{root}/", "").splitlines()
    return lines or ([f"doxygen: exit {done.returncode}"] if done.returncode else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parent.parent, type=pathlib.Path)
    parser.add_argument("-o", dest="folder", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = scratch
        if options.folder:
            options.folder.mkdir(parents=True, exist_ok=True)
            folder = options.folder.resolve()
        findings = make_pages(options.root.resolve(), folder)
    for text in findings:
        print(text)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
