#!/usr/bin/env python3
"""Draws the benchmark records and lists them: python3 tools/records/draw_records.py [--check] [ROOT]

Reads bench/records/DATE-NAME.json, writes a chart of each to docs/images/NAME.svg, and the list of all,
newest first, to bench/records/README.md. With --check it writes nothing, names what is not up to date, and
exits with 1 if there is something.

A record is an object: title; date, YYYY-MM-DD; commit, weft's; machine; command; unit of the figures;
notes, sentences; series, the labels of a row's figures; rows, each {"name", "figures"}, where a figure is
a number, or null where nothing was measured.
"""

import datetime
import html
import json
import pathlib
import re
import sys

KEYS = {"title", "date", "commit", "machine", "command", "unit", "notes", "series", "rows"}
COLOURS = ("#2b6cb0", "#2c7a7b", "#b7791f", "#c05621")
WIDTH, BAR, LEFT = 760, 14, 250
HEAD = """# Records of benchmarks

Written by `tools/records/draw_records.py` from the JSON files beside it, one for each measurement: what was measured, when, at
which commit, on which machine and by which command. A new measurement is a new file; old ones stay as they are. What the
figures mean for users is on the page about [performance](../../docs/performance.md).
"""


def read_record(path):
    record = json.loads(path.read_text())
    assert record.keys() == KEYS, f"{path}: expected the keys {sorted(KEYS)}, got {sorted(record)}"
    datetime.date.fromisoformat(record["date"])
    assert path.stem.startswith(record["date"] + "-"), f"{path}: expected {record['date']}- before the name"
    assert 1 <= len(record["series"]) <= len(COLOURS), f"{path}: expected 1 to {len(COLOURS)} series"
    for row in record["rows"]:
        assert row.keys() == {"name", "figures"}, f"{path}: a row has {sorted(row)}"
        assert len(row["figures"]) == len(record["series"]), f"{path}: {row['name']}: one figure for each series"
        assert any(row["figures"]), f"{path}: {row['name']}: expected a figure above 0"
    return record


def image_of(path):
    return re.sub(r"^\d{4}-\d\d-\d\d-", "", path.stem) + ".svg"


def number(figure):
    if figure is None:
        return ""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:g}"


def bars_of(record, row, y):
    """The bars of one row, each row to a scale of its own; y is its upper edge."""
    yield f'<text x="8" y="{y + 11}" font-weight="bold">{html.escape(row["name"])}</text>'
    most = max(figure for figure in row["figures"] if figure is not None)
    for colour, label, figure in zip(COLOURS, record["series"], row["figures"]):
        if figure is None:
            continue
        y += BAR
        length = (WIDTH - LEFT - 70) * figure / most
        yield (f'<text x="{LEFT - 6}" y="{y + 11}" text-anchor="end">{html.escape(label)}</text>'
               f'<rect x="{LEFT}" y="{y + 1}" width="{length:.1f}" height="{BAR - 2}" fill="{colour}"/>'
               f'<text x="{LEFT + length + 5:.1f}" y="{y + 11}">{number(figure)}</text>')


def svg_of(record):
    parts, y = [], 34
    for row in record["rows"]:
        parts += bars_of(record, row, y)
        y += BAR * (1 + sum(figure is not None for figure in row["figures"])) + 10
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" font-family="sans-serif" '
            f'font-size="11">\n<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>\n'
            f'<text x="8" y="18" font-size="13">{html.escape(record["title"])} ({record["unit"]})</text>')
    return "\n".join([head, *parts, "</svg>", ""])


def section_of(path, record):
    lines = [f"## {record['title']}", "",
             f"{record['date']}, commit {record['commit']}. {record['machine'][0].upper()}{record['machine'][1:]}. "
             f"`{record['command']}`. [Chart](../../docs/images/{image_of(path)}), [data]({path.name}).", "",
             f"| {record['unit']} | {' | '.join(record['series'])} |", "|---" * (len(record["series"]) + 1) + "|"]
    lines += [f"| {row['name']} | {' | '.join(map(number, row['figures']))} |" for row in record["rows"]]
    return "\n".join(lines + [""] + [f"- {note}" for note in record["notes"]])


def outputs(root):
    """Path -> text of everything that follows from the records."""
    paths = sorted((root / "bench/records").glob("*.json"), reverse=True)
    records = {path: read_record(path) for path in paths}
    wanted = {root / "docs/images" / image_of(path): svg_of(record) for path, record in records.items()}
    assert len(wanted) == len(records), "bench/records: two records have one name; give one of them another"
    sections = [section_of(path, record).rstrip() for path, record in records.items()]
    wanted[root / "bench/records/README.md"] = "\n\n".join([HEAD.rstrip(), *sections]) + "\n"
    return wanted


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parents[2])
    wanted = outputs(root)
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    stale += [path for path in (root / "docs/images").glob("*.svg") if path not in wanted]
    if "--check" not in sys.argv:
        for path in stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path]) if path in wanted else path.unlink()
        return 0
    for path in sorted(stale):
        print(f"{path.relative_to(root)}: not what its record says; run tools/records/draw_records.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
