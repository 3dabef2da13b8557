#!/usr/bin/env python3
"""Times weft's training step against PyTorch's, in turns on this machine: same model, mesh, batch,
tokens and initial weights. Prints a table of tokens per second (medians of rounds) and ratios.

Usage: compare_training.py --program BUILD/bench/train/bench_train_step --python PYTHON
                           [--rounds 3] [--steps 5] [--dtypes fp32,bf16] [--cases single,tp,dp]

PYTHON has torch 2.11. The peer, torch_training_peer.py, runs with the best settings found for it:
float32 products through oneDNN, one reduction per block input, losses without gathered logits, and
for bfloat16 both parameters of that type and autocast, of which the faster is to be looked at.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys

PEER = pathlib.Path(__file__).resolve().parent / "torch_training_peer.py"
# Case: weft's --tp and the number of ranks; the peer's modes.
CASES = {
    "single": ((1, 1), {"torch": "single"}),
    "tp": ((2, 2), {"DTensor": "tp", "hand-written": "tpm"}),
    "dp": ((1, 2), {"FSDP2": "fsdp", "DDP": "ddp"}),
}
PEER_DTYPES = {"fp32": {"default": ["fp32"], "FSDP2": ["fp32"]},
               "bf16": {"default": ["autocast", "bf16"], "FSDP2": ["mp", "mpb", "bf16"]}}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_ranks(command, ranks):
    """Starts one process per rank and returns rank 0's output."""
    port = str(free_port())
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ)
        if ranks > 1:
            environment |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                            "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                            "MASTER_PORT": port}
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True))
    outputs = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, outputs):
        if process.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit {process.returncode}\n{errors[-2000:]}")
    return outputs[0][0]


def run_weft(arguments, case, dtype, threads):
    tp, ranks = CASES[case][0]
    output = run_ranks([arguments.program, "--dtype", dtype, "--tp", str(tp), "--threads", threads,
                        "--steps", str(arguments.steps), "--warmup", "2"], ranks)
    return json.loads(output.strip().splitlines()[-1])


def run_peer(arguments, case, name, dtype, threads):
    output = run_ranks([arguments.python, str(PEER), "--mode", CASES[case][1][name], "--dtype",
                        dtype, "--threads", threads, "--steps", str(arguments.steps), "--warmup",
                        "2"], CASES[case][0][1])
    line = [line for line in output.splitlines() if line.startswith("RESULT ")][-1]
    return json.loads(line.removeprefix("RESULT "))


def contestants(case, dtype):
    yield "weft", None
    for name in CASES[case][1]:
        kinds = PEER_DTYPES[dtype]
        for kind in kinds.get(name, kinds["default"]):
            yield name, kind


def compare(arguments, case, dtype):
    threads = "2" if case == "single" else "1"
    speeds, losses = {}, {}
    for _ in range(arguments.rounds):
        for name, kind in contestants(case, dtype):
            result = (run_weft(arguments, case, dtype, threads) if name == "weft"
                      else run_peer(arguments, case, name, kind, threads))
            key = name if kind in (None, "fp32") else f"{name} ({kind})"
            speeds.setdefault(key, []).append(result["tok_s"])
            losses[key] = (result["losses"][0], result["losses"][-1])
            print(f"  {case} {dtype} {key}: {result['tok_s']:.0f}", file=sys.stderr, flush=True)
    own = statistics.median(speeds["weft"])
    for key, values in speeds.items():
        first, last = losses[key]
        median = statistics.median(values)
        print(f"{case:7} {dtype:5} {key:24} {median:7.0f} tok/s  weft x{own / median:5.2f}  "
              f"({min(values):.0f} to {max(values):.0f})  loss {first:.4f} {last:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--cases", default="single,tp,dp")
    arguments = parser.parse_args()
    for case in arguments.cases.split(","):
        for dtype in arguments.dtypes.split(","):
            compare(arguments, case, dtype)


if __name__ == "__main__":
    main()
