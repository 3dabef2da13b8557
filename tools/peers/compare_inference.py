#!/usr/bin/env python3
"""Times weft's prompts and generation against llama.cpp's, in turns on this machine, and draws it.

Usage: compare_inference.py --weft BUILD/weft --llama-bench LLAMA_CPP/llama-bench [--rounds 5]
                            [--json OUT.json] [--record DATE-NAME.json --machine TEXT] [--page PAGE.md]
                            NAME=MODEL[:LLAMA_MODEL…] …

weft runs MODEL as one rank of two threads and as two ranks of one; llama.cpp runs each LLAMA_MODEL
(default: MODEL) with one thread and with two, of which the better counts. Every round runs all of
them once, prompt and generation apart; a figure is the median over rounds. The table is written to
the page between the lines <!-- speeds --> and <!-- end of speeds -->, and all figures as a record of
bench/records, which tools/records/draw_records.py draws.
"""

import argparse
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys

PROMPT, NEW = 512, 128
KINDS = {"prompt": "prompt of 512 tokens", "generation": "generation"}
WEFT_RUNS = {"weft, 1 rank": ["--tp", "1", "-t", "2"], "weft, 2 ranks": ["--tp", "2", "-t", "1"]}


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def run_weft(program, model, flags):
    report = json.loads(output_of([program, "bench", "-m", model, *flags, "-p", str(PROMPT), "-n",
                                   str(NEW), "-r", "1", "--profile", "--json"]))
    limits = report["roofline"]
    return {"prompt": report["prefill_tokens_per_s"]["median"],
            "generation": report["decode_tokens_per_s"]["median"],
            "limit": limits["decode_limit"], "peak_bytes": max(report["peak_rss_bytes"])}


def run_llama(program, model, threads):
    rows = json.loads(output_of([program, "-m", model, "-t", str(threads), "-p", str(PROMPT), "-n",
                                 str(NEW), "-r", "1", "-o", "json"]))
    return {"prompt" if row["n_gen"] == 0 else "generation": row["avg_ts"] for row in rows}


def measure(arguments, model, peers):
    """All figures of a case, by contestant and kind."""
    runs = {}
    for number in range(arguments.rounds):
        taken = {name: run_weft(arguments.weft, model, flags) for name, flags in WEFT_RUNS.items()}
        for peer in peers:
            for threads in (1, 2):
                label = f"llama.cpp {pathlib.Path(peer).stem}, {threads} threads"
                taken[label] = run_llama(arguments.llama_bench, peer, threads)
        for name, figures in taken.items():
            print(f"  {number} {name}: {figures}", file=sys.stderr, flush=True)
            for kind, figure in figures.items():
                runs.setdefault(name, {}).setdefault(kind, []).append(figure)
    return {name: {kind: statistics.median(values) for kind, values in kinds.items()}
            for name, kinds in runs.items()}


def best_peer(case, kind, stem=None):
    """The best of llama.cpp's, of one file or of all."""
    return max((figures[kind], name) for name, figures in case.items()
               if name.startswith("llama.cpp") and (stem is None or f" {stem}," in name))


def table_of(report):
    lines = ["| model | | weft, 1 rank | weft, 2 ranks | llama.cpp, same file | llama.cpp's best of "
             "these files |", "|---|---|---|---|---|---|"]
    for name, entry in report.items():
        case, same = entry["figures"], pathlib.Path(entry["peers"][0]).stem
        for kind, title in KINDS.items():
            own, (best, where) = best_peer(case, kind, same), best_peer(case, kind)
            weft = [case[run][kind] for run in WEFT_RUNS]
            words = re.sub(r"^llama.cpp [^,]*?-?([^-,]*), (\d).*$", r"\1, \2 threads", where)
            lines.append(
                f"| {name} | {title} | {weft[0]:,.0f} | {weft[1]:,.0f} | {own[0]:,.0f} "
                f"(x{weft[0] / own[0]:.2f}, x{weft[1] / own[0]:.2f}) | {best:,.0f} of {words} "
                f"(x{weft[0] / best:.2f}, x{weft[1] / best:.2f}) |")
        shares = [case[run]["generation"] / case[run]["limit"] for run in WEFT_RUNS]
        lines.append(f"| {name} | of what memory allows | {shares[0]:.0%} | {shares[1]:.0%} | | |")
    return "\n".join(lines)


def record_of(report, machine, commit):
    """A record as tools/records/draw_records.py describes it."""
    rows = []
    for name, entry in report.items():
        case, same = entry["figures"], pathlib.Path(entry["peers"][0]).stem
        for kind, title in KINDS.items():
            figures = [case[run][kind] for run in WEFT_RUNS]
            figures += [best_peer(case, kind, same)[0], best_peer(case, kind)[0]]
            rows.append({"name": f"{name}, {title}", "figures": [round(figure) for figure in figures]})
    return {"title": "Prompts and generation beside llama.cpp", "date": str(datetime.date.today()),
            "commit": commit, "machine": machine, "command": "tools/peers/compare_inference.py", "unit": "tokens/s",
            "notes": ["llama.cpp: the better of 1 and 2 threads; medians of rounds in turns."],
            "series": [*WEFT_RUNS, "llama.cpp, same file", "llama.cpp's best file"], "rows": rows}


def write_table(page, table):
    text = page.read_text()
    changed = re.sub(r"(<!-- speeds -->\n).*?(<!-- end of speeds -->)",
                     lambda match: match[1] + table + "\n" + match[2], text, flags=re.DOTALL)
    if changed == text and table not in text:
        sys.exit(f"{page}: no lines <!-- speeds --> and <!-- end of speeds -->; add them")
    page.write_text(changed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft")
    parser.add_argument("--llama-bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--from-json", type=pathlib.Path, help="draw these figures, measure none")
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--machine", default="a machine without a name", help="for the record")
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", metavar="NAME=MODEL[:LLAMA_MODEL…]")
    arguments = parser.parse_args()
    if arguments.cases and not (arguments.weft and arguments.llama_bench):
        parser.error("--weft and --llama-bench: expected both, to measure with")
    report = json.loads(arguments.from_json.read_text()) if arguments.from_json else {}
    for case in arguments.cases:
        name, models = case.split("=", 1)
        model, *peers = models.split(":")
        peers = peers or [model]
        report[name] = {"peers": [pathlib.Path(peer).name for peer in peers],
                        "figures": measure(arguments, model, peers)}
        if arguments.json:
            arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    print(table_of(report))
    if arguments.record:
        commit = output_of(["git", "rev-parse", "--short", "HEAD"]).strip()
        record = record_of(report, arguments.machine, commit)
        arguments.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    if arguments.page:
        write_table(arguments.page, table_of(report))


if __name__ == "__main__":
    main()
