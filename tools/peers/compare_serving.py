#!/usr/bin/env python3
"""Times `weft serve` beside llama-server: both answer the same clients of `weft bench --url`, in turns on this machine.

Usage: compare_serving.py --weft BUILD/weft --llama-server LLAMA_CPP/llama-server [--rounds 5] [--clients 1,4,8,16]
                          [--record DATE-NAME.json --machine TEXT] MODEL

weft runs as one rank of two threads and as two ranks of one, llama-server with two threads. Each has as many slots as
there are clients; prompts differ. A round starts each server once for each number of clients; a figure is the median
over rounds, of short prompts with long answers and of long prompts with short ones. Beside weft's stands what `weft
bench -b` generates of as many sequences without a server. The record is one of bench/records.
"""

import argparse
import datetime
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

from compare_inference import WEFT_RUNS, output_of

LOADS = {"prompts of 8 words, answers of 128 tokens": ["-p", "8", "-n", "128"],
         "prompts of 256 words, answers of 64 tokens": ["-p", "256", "-n", "64"]}
PEER = "llama-server"
CONTEXT = 1024


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_ready(server, port):
    for _ in range(600):
        if server.poll() is not None:
            sys.exit(f"{server.args[0]}: exit {server.returncode} before it answered")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{server.args[0]}: no answer on port {port} within 60 s")


def servers_of(arguments, clients):
    """Each contestant's command, but for its port."""
    commands = {name: [arguments.weft, "serve", arguments.model, *flags, "--parallel", str(clients), "-c", str(CONTEXT)]
                for name, flags in WEFT_RUNS.items()}
    commands[PEER] = [arguments.llama_server, "-m", arguments.model, "-t", "2", "-np", str(clients), "-c",
                      str(CONTEXT * clients), "--no-webui"]
    return commands


def measure_server(arguments, command, clients):
    """Tokens per second of each load: those of the answers, of all clients together."""
    port = free_port()
    server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(server, port)
        figures = {}
        for name, flags in LOADS.items():
            report = json.loads(output_of([
                arguments.weft, "bench", "--url", f"http://127.0.0.1:{port}/v1", "--clients", str(clients), *flags,
                "--num-requests", str(max(4, 2 * clients)), "--seed", "7", "--json"]))
            figures[name] = report["runs"][0]["tokens_per_s"]
        return figures
    finally:
        server.terminate()
        server.wait()


def batch_speed(arguments, flags, clients):
    report = json.loads(output_of([arguments.weft, "bench", "-m", arguments.model, *flags, "-b", str(clients), "-p", "8",
                                   "-n", "128", "-r", "1", "--json"]))
    return report["batches"][0]["decode_tokens_per_s"]["median"]


def measure(arguments, clients):
    """The medians of all contestants for each load."""
    runs = {}
    for number in range(arguments.rounds):
        for name, command in servers_of(arguments, clients).items():
            figures = measure_server(arguments, command, clients)
            if name in WEFT_RUNS:
                figures["without a server"] = batch_speed(arguments, WEFT_RUNS[name], clients)
            print(f"  {clients} clients, round {number}, {name}: {figures}", file=sys.stderr, flush=True)
            for load, figure in figures.items():
                runs.setdefault(load, {}).setdefault(name, []).append(figure)
    return {load: {name: statistics.median(values) for name, values in names.items()} for load, names in runs.items()}


def rows_of(clients, medians):
    """Of weft's two runs and llama-server, and of weft without a server."""
    rows, plural = [], "s" * (clients > 1)
    for load in LOADS:
        figures = [medians[load][run] for run in (*WEFT_RUNS, PEER)]
        rows.append({"name": f"{clients} client{plural}, {load}", "figures": figures})
    alone = [medians["without a server"][run] for run in WEFT_RUNS]
    rows.append({"name": f"{clients} sequence{plural}, weft bench -b", "figures": [*alone, None]})
    return [{**row, "figures": [None if figure is None else round(figure) for figure in row["figures"]]} for row in rows]


def table_of(rows):
    lines = ["| tokens/s | weft, 1 rank | weft, 2 ranks | llama-server |", "|---|---|---|---|"]
    for row in rows:
        *own, peer = row["figures"]
        ratios = "" if peer is None else f"{peer:,} (x{own[0] / peer:.2f}, x{own[1] / peer:.2f})"
        lines.append(f"| {row['name']} | {own[0]:,} | {own[1]:,} | {ratios} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", required=True)
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", default="1,4,8,16")
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--machine", default="a machine without a name", help="for the record")
    parser.add_argument("model")
    arguments = parser.parse_args()
    rows = []
    for clients in map(int, arguments.clients.split(",")):
        rows += rows_of(clients, measure(arguments, clients))
        print(table_of(rows), flush=True)
    if arguments.record:
        commit = output_of(["git", "rev-parse", "--short", "HEAD"]).strip()
        record = {"title": "Answers of a server beside llama-server's", "date": str(datetime.date.today()),
                  "commit": commit, "machine": arguments.machine,
                  "command": "tools/peers/compare_serving.py " + pathlib.Path(arguments.model).name,
                  "unit": "tokens/s", "notes": [f"llama-server: 2 threads; medians of {arguments.rounds} rounds in turns."],
                  "series": [*WEFT_RUNS, PEER], "rows": rows}
        arguments.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
