"""What the examples share: their flags, weft's verbs, and the verdict."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
BYTES = HERE / "bytes"


def parse_flags(about, steps, target):
    parser = argparse.ArgumentParser(
        description=about, epilog="All else goes to weft, e.g. --tp 2 or --dp 2.")
    parser.add_argument("out", type=pathlib.Path, help="folder of the run; it is made")
    parser.add_argument("--weft", default=HERE.parents[1] / "build" / "weft", help="the program")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--target", type=float, default=target, help="figure to reach")
    parser.add_argument("--held-out", type=int, help="problems to measure by")
    return parser


def weft(flags, *arguments, cwd=None, **variables):
    """Runs a verb and returns what it wrote to stdout; its messages go on to stderr."""
    result = subprocess.run([pathlib.Path(flags.weft).resolve(), *map(str, arguments)], cwd=cwd, text=True,
                            stdout=subprocess.PIPE, env=os.environ | variables)
    if result.returncode != 0:
        sys.exit(f"weft {arguments[0]}: exit {result.returncode}")
    return result.stdout


def train(flags, verb, config, more, **variables):
    """Runs `weft train` or `weft lora` in the run's folder, where the data lies."""
    start = time.monotonic()
    weft(flags, verb, HERE / config, "--steps", flags.steps, *more, cwd=flags.out, **variables)
    print(f"{verb}: {flags.steps} steps in {time.monotonic() - start:.0f} s", flush=True)


def write_lines(path, objects):
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))


def ask_all(questions, ask):
    """The answers, by as many processes as there are cores."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(ask, questions))


def finish(text, is_reached):
    print(text + (": reached" if is_reached else ": NOT reached"))
    sys.exit(0 if is_reached else 1)
