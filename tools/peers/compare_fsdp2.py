#!/usr/bin/env python3
"""Sets weft's partially sharded data parallelism beside PyTorch's FSDP2 with hybrid sharding: the
gradients where ranks and microbatches use different units, bytes over the replica axis, and bytes
of state. Prints three tables in Markdown; exits with 1 where one of weft's gradients is wrong.

Usage: compare_fsdp2.py [--program BUILD/bench/train/bench_psdp_ways] [--python PYTHON]

PYTHON has torch 2.11. All values are whole numbers over four ranks, so nothing is rounded.
"""

import argparse
import json
import pathlib
import sys

from compare_training import run_ranks

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEER = pathlib.Path(__file__).resolve().parent / "fsdp2_ways_peer.py"
# What is done, as bench_psdp_ways takes it; the last step's gradients that are right.
CASES = {
    "all ranks and microbatches use a and b": (["--ways", "ab,ab"], {"a": 5.0, "b": 5.0}),
    "a is not used in the step's last microbatch, 1st step": (["--ways", "a,-"], {"a": 2.5}),
    "… 2nd step, a used three times": (["--ways", "a,-|a,a,a"], {"a": 7.5}),
    "microbatch 0 uses a, 1 uses b": (["--ways", "a,b"], {"a": 2.5, "b": 2.5}),
    "microbatch 0 uses a, 1 uses a and b": (["--ways", "a,ab"], {"a": 5.0, "b": 2.5}),
    "data rank 0 uses a, data rank 1 uses b": (["--ways", "a/b"], {"a": 1.0, "b": 1.5}),
    "300 microbatches of gradient 1, bfloat16": (
        ["--ways", ",".join(["ab"] * 300), "--dtype", "bf16", "--same"], {"a": 300.0, "b": 300.0}),
}


def run_weft(arguments, options, ranks=4):
    output = run_ranks([arguments.program, *options], ranks)
    return json.loads(output.strip().splitlines()[-1])


def run_fsdp2(arguments, options, ranks=4):
    output = run_ranks([arguments.python, str(PEER), *options], ranks)
    line = [line for line in output.splitlines() if line.startswith("RESULT ")][-1]
    return json.loads(line.removeprefix("RESULT "))


def value_text(value):
    if isinstance(value, list):
        return " or ".join(map(value_text, value)) + " by rank"
    return "none" if value in (None, "None") else f"{float(value):g}"


def gradients_text(result, units):
    if "error" in result:
        return result["error"]
    last = result["gradients"][-1]
    return ", ".join(f"{unit} {value_text(last[unit + '.weight'])}" for unit in units)


def compare_gradients(arguments):
    """Prints the first table; returns whether weft is right throughout."""
    print("| 2 replicas × 2 data ranks | right | FSDP2 | FSDP2, replicas last | weft |\n"
          "|---|---|---|---|---|")
    is_right = True
    for name, (options, right) in CASES.items():
        options = [*options, "--replicas", "2", "--width", "64"]
        weft = gradients_text(run_weft(arguments, options), right)
        peers = [gradients_text(run_fsdp2(arguments, options + more), right)
                 for more in ([], ["--deferred"])]
        expected = ", ".join(f"{unit} {value:g}" for unit, value in right.items())
        is_right = is_right and weft == expected
        print(f"| {name} | {expected} | {peers[0]} | {peers[1]} | {weft} |", flush=True)
    return is_right


def compare_bytes(arguments):
    print("\n| bytes that a rank sends over 2 replicas in a step | FSDP2 | FSDP2, replicas last | "
          "weft | weft, bfloat16 |\n|---|---|---|---|---|")
    for microbatches in (1, 4, 8):
        options = ["--replicas", "2", "--width", "6400", "--ways",
                   ",".join(["ab"] * microbatches)]
        peers = [run_fsdp2(arguments, options + more) for more in ([], ["--deferred"])]
        own = [run_weft(arguments, options + more) for more in ([], ["--dtype", "bf16"])]
        row = [f"{each['replica_bytes']:,.0f}" for each in peers + own]
        name = "1 microbatch" if microbatches == 1 else f"{microbatches} microbatches"
        print(f"| {name} | {' | '.join(row)} |", flush=True)


def compare_state(arguments):
    print("\n| bytes of state on a rank of 8, 19,200 parameters | FSDP2 | FSDP2, bfloat16 | weft | "
          "weft, bfloat16 |\n|---|---|---|---|---|")
    for replicas in (1, 2, 4, 8):
        options = ["--replicas", str(replicas), "--width", "6400"]
        row = [f"{run(arguments, options + more, 8)['state_bytes']:,}"
               for run in (run_fsdp2, run_weft) for more in ([], ["--dtype", "bf16"])]
        print(f"| {replicas} × {8 // replicas} | {' | '.join(row)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/bench/train/bench_psdp_ways"))
    parser.add_argument("--python", default=sys.executable)
    arguments = parser.parse_args()
    is_right = compare_gradients(arguments)
    compare_bytes(arguments)
    compare_state(arguments)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
