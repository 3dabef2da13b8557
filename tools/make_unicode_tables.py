#!/usr/bin/env python3
"""Writes weft/text/unicode_tables.cpp: the Unicode properties that Hugging Face tokenizers sees.

Published tokenizers split text with the regular expressions of the `tokenizers` package, so its
idea of a letter, digit or space counts, not that of any other Unicode library or version. This
script asks the package itself about every code point. Upper and lower case are Python's, because
chat templates are written for Python's strings.

Usage: make_unicode_tables.py [OUT.cpp]      needs PyPI: tokenizers
"""

import pathlib
import sys

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, ALL))

# Must match the constants of weft/text/unicode.h.
PROPERTIES = {
    r"\p{L}": 1,
    r"\p{M}": 2,
    r"\p{N}": 4,
    r"\s": 8,
    r"[\p{Lu}\p{Lt}]": 32,
    r"\p{Ll}": 64,
}
NUMERIC = 16


def matching(pattern):
    """Code points that match `pattern`."""
    splitter = pre_tokenizers.Split(Regex(pattern + "+"), "removed")
    left = set()
    for _, (begin, end) in splitter.pre_tokenize_str(TEXT):
        left.update(ALL[begin:end])
    return set(ALL) - left


def numeric():
    """Code points that the `Digits` pre-tokenizer isolates."""
    pieces = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str("x" + "x".join(TEXT) + "x")
    return {ord(p) for p, _ in pieces if len(p) == 1 and p != "x"}


def class_ranges():
    bits = dict.fromkeys(ALL, 0)
    for pattern, bit in PROPERTIES.items():
        for c in matching(pattern):
            bits[c] |= bit
    for c in numeric():
        bits[c] |= NUMERIC
    ranges, last = [], None
    for c in range(0x110000):
        value = bits.get(c, 0)
        if value != last:
            ranges.append((c, value))
            last = value
    return ranges


def decompositions(nfd):
    table = []
    for c in ALL:
        if 0xAC00 <= c <= 0xD7A3:
            continue  # Hangul syllables follow a formula
        d = nfd(chr(c))
        if d != chr(c):
            table.append((c, [ord(x) for x in d]))
    return table


def compositions(table, nfc):
    pairs = []
    for c, d in table:
        if len(d) < 2 or nfc(chr(c)) != chr(c):
            continue
        first = nfc("".join(map(chr, d[:-1])))
        assert len(first) == 1 and nfc(first + chr(d[-1])) == chr(c), hex(c)
        pairs.append((ord(first), d[-1], c))
    return sorted(pairs)


def combining_classes(nfd):
    """Order of combining marks: equal numbers never swap, a smaller one moves before a larger one.

    The numbers are ranks of the canonical combining classes; only their order matters.
    """
    low, high = "\u0334", "\u0345"  # members of the lowest and the highest class

    def swaps(a, b):
        return nfd("a" + a + b) == "a" + b + a

    # A character that decomposes has no class of its own.
    plain = [chr(c) for c in ALL if nfd(chr(c)) == chr(c)]
    marks = [c for c in plain if c in (low, high) or swaps(high, c) or swaps(c, low)]
    classes = []  # one list of members per class, in order
    for mark in marks:
        place = next((i for i, m in enumerate(classes) if not swaps(mark, m[0])), len(classes))
        if place < len(classes) and not swaps(classes[place][0], mark):
            classes[place].append(mark)
        else:
            classes.insert(place, [mark])
    return sorted((ord(c), rank + 1) for rank, members in enumerate(classes) for c in members)


def class_order_fixed(nfd, entries):
    """Checks on a sample of pairs that the ranks predict every swap."""
    by_rank = {}
    for c, rank in entries:
        by_rank.setdefault(rank, []).append(c)
    heads = [(rank, members[0], members[-1]) for rank, members in by_rank.items()]
    for r1, a1, a2 in heads:
        for r2, b1, b2 in heads:
            for a, b in ((a1, b2), (a2, b1)):
                swapped = nfd("a" + chr(a) + chr(b)) == "a" + chr(b) + chr(a)
                assert a == b or swapped == (r2 < r1), (hex(a), hex(b))


def case_maps():
    """(code, upper, lower, title) where Python changes one character, as lists of code points."""
    rows = []
    for c in ALL:
        ch = chr(c)
        maps = [ch.upper(), ch.lower(), ch.title()]
        if any(m != ch for m in maps):
            rows.append((c, *[[ord(x) for x in m] for m in maps]))
    return rows


def emit_rows(rows, per_line):
    lines = [", ".join(rows[i : i + per_line]) for i in range(0, len(rows), per_line)]
    return ",\n    ".join(lines)


def span(name, type_name, rows, per_line):
    body = emit_rows(rows, per_line)
    return (
        f"constexpr {type_name} {name}Data[] = {{\n    {body}}};\n"
        f"const std::span<const {type_name}> {name} = {name}Data;\n\n"
    )


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "weft/text/unicode_tables.cpp"
    nfd, nfc = normalizers.NFD().normalize_str, normalizers.NFC().normalize_str
    folded = sorted(matching("(?i:[strevmld])") - set(map(ord, "strevmldSTREVMLD")))
    assert folded == [0x17F], folded  # pre_tokenizer.cpp knows this one

    table = decompositions(nfd)
    marks = combining_classes(nfd)
    class_order_fixed(nfd, marks)
    flat, decomposed = [], []
    for c, d in table:
        decomposed.append(f"{{{c:#x}, {len(flat)}, {len(d)}}}")
        flat += d
    cases = []
    for c, *maps in case_maps():
        padded = [m + [0] * (3 - len(m)) for m in maps]
        cases.append(f"{{{c:#x}, " + ", ".join("{" + ", ".join(map(hex, m)) + "}" for m in padded) + "}")
    out = "// Generated by tools/make_unicode_tables.py from tokenizers "
    out += f"{tokenizers.__version__} and Python {sys.version_info.major}.{sys.version_info.minor}.\n"
    out += '#include "weft/text/unicode.h"\n\n// clang-format off\nnamespace weft::text {\n\n'
    out += span("kClassRanges", "ClassRange", [f"{{{c:#x}, {b}}}" for c, b in class_ranges()], 8)
    out += span("kDecompositions", "Decomposition", decomposed, 6)
    out += span("kDecomposed", "char32_t", [f"{c:#x}" for c in flat], 12)
    out += span(
        "kCompositions",
        "Composition",
        [f"{{{a:#x}, {b:#x}, {c:#x}}}" for a, b, c in compositions(table, nfc)],
        5,
    )
    out += span("kMarkRanks", "MarkRank", [f"{{{c:#x}, {r}}}" for c, r in marks], 8)
    out += span("kCaseMaps", "CaseMap", cases, 2)
    out += "}  // namespace weft::text\n// clang-format on\n"
    target.write_text(out)


if __name__ == "__main__":
    main()
