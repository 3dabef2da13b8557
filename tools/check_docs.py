#!/usr/bin/env python3
"""Keeps headers documented: python3 tools/check_docs.py [ROOT]

Every class, struct, enum and free function that a header in weft/ declares at namespace scope has a
/// comment right above it. Forward declarations and what lies in a `detail` or unnamed namespace
need none; functions declared line below line share the comment above the first. Prints file:line
for each finding; exits with 1 if there is one.
"""

import pathlib
import re
import sys

from scan import cpp_scan

DOCUMENTED = ("class", "struct", "union", "enum", "function")


def is_public(found):
    kinds = [kind for kind, _ in found.scope]
    names = [name for _, name in found.scope]
    hidden = any(name == "" or name.split("::")[-1] == "detail" for name in names)
    if found.kind == "function" and "::" in found.name:
        return False  # the definition of a member, documented in its class
    return all(kind == "namespace" for kind in kinds) and not hidden


def is_macro_call(found):
    return re.match(r"[A-Z][A-Z0-9_]*\(", found.head) is not None


def check_header(path, text):
    lines = text.splitlines()
    end_of_group = -1  # last line of a documented function, whose neighbour below shares its comment
    for found in cpp_scan.scan(text):
        if found.kind not in DOCUMENTED or not is_public(found) or is_macro_call(found):
            continue
        above = lines[found.line - 2].strip() if found.line >= 2 else ""
        is_grouped = found.kind == "function" and found.line == end_of_group + 1
        if not above.startswith("///") and not is_grouped:
            yield f"{path}:{found.line}: {found.kind} {found.name} has no /// comment right above it"
        elif found.kind == "function" and not found.has_body:
            end_of_group = found.last_line


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    findings = []
    for path in sorted((root / "weft").rglob("*.h")):
        findings.extend(check_header(path.relative_to(root), path.read_text()))
    for text in findings:
        print(text)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
