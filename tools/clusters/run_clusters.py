#!/usr/bin/env python3
"""Training on two hosts under real launchers while ranks and hosts are killed: tools/clusters/README.md"""

import argparse
import json
import pathlib
import random
import signal
import sys
import tempfile
import time

from hosts import Hosts, kill
from ways import ROOT, WAYS

#: Steps between checkpoints; a fault strikes somewhere between two.
EVERY = 20
CONFIG = """[model]
hidden_size = 32
num_layers = 2
num_heads = 2
tokenizer = "{root}/examples/train/bytes"
[mesh]
replicas = 2
[batch]
sequences = 4
sequence_length = 32
[train]
steps = {steps}
threads = 1
[data]
train = ["{root}/README.md"]
cache = "{folder}/cache"
[checkpoint]
folder = "{folder}/run"
every = {every}
[log]
every = 50
tensorboard = false
peak_flops = 1e9
"""


def last_line(folder):
    try:
        lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
        return json.loads(lines[-1])
    except (OSError, IndexError, json.JSONDecodeError):
        return {}


def steps_done(folder):
    return last_line(folder).get("step", 0)


class Lost(Exception):
    """The job did not go on."""


def wait_for_step(way, step, limit):
    """Seconds until the job has done `step` steps."""
    begun = time.monotonic()
    while steps_done(way.folder) < step:
        if way.status() not in (None, 0):
            raise Lost(f"the job ended with status {way.status()} at step {steps_done(way.folder)} of {step}")
        if time.monotonic() - begun > limit:
            raise Lost(f"no step {step} after {limit} s, but {steps_done(way.folder)}")
        time.sleep(0.1)
    return time.monotonic() - begun


def strike(way, kind, dice):
    """Kills a rank, or a host with all that runs there; what the node runs by itself comes up again."""
    node = dice.choice(["node0", "node1"])
    if kind == "host":
        way.hosts.kill_host(node)
        time.sleep(dice.uniform(*way.away))
        way.hosts.boot(node)
        way.boot(node)
        return
    ranks = way.hosts.ranks(node)
    if not ranks:
        raise Lost(f"no rank on {node} to kill")
    kill(dice.choice(ranks))


def prepare(folder, steps):
    (folder / "train.toml").write_text(CONFIG.format(root=ROOT, folder=folder, steps=steps, every=EVERY))
    return folder / "train.toml"


def final_loss(way, steps, limit):
    wait_for_step(way, steps, limit)
    for _ in range(100):
        if way.status() is not None:
            break
        time.sleep(0.2)
    return last_line(way.folder)["loss"]


def run_job(name, folder, options, kinds):
    """The final loss, and for each kind the seconds until the job was further than when it was struck."""
    folder.mkdir(parents=True)
    dice = random.Random(options.seed)
    times = {kind: [] for kind in kinds}
    with Hosts(folder) as hosts:
        way = WAYS[name](hosts, options.weft, prepare(folder, options.steps))
        try:
            way.set_up()
            way.begin()
            wait_for_step(way, EVERY + 1, 120)
            for trial in range(options.trials):
                for kind in kinds:
                    wait_for_step(way, steps_done(folder) + dice.randrange(EVERY), options.limit)
                    at = steps_done(folder)
                    if at + 2 * EVERY > options.steps:
                        raise Lost(f"too few --steps for {options.trials} trials")
                    strike(way, kind, dice)
                    times[kind].append(wait_for_step(way, at + EVERY, options.limit))
                    print(f"{way.name}: {kind} {trial + 1}: at step {at}, {times[kind][-1]:.1f} s", file=sys.stderr)
            return way.name, final_loss(way, options.steps, 600), times
        finally:
            way.tear_down()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", default=list(WAYS), metavar="WAY", help=", ".join(WAYS) + " (default: all)")
    parser.add_argument("--weft", default=str(ROOT / "build" / "weft"))
    parser.add_argument("--trials", type=int, default=20, help="of each kind of fault")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--limit", type=float, default=120, help="seconds within which a job must be further")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for what the jobs write (default: a temporary one)")
    options = parser.parse_args()
    # As Ctrl-C does: namespaces and daemons go with the program.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="weft-clusters-") as temporary:
        top = options.keep or pathlib.Path(temporary)
        _, whole, _ = run_job("ByLaunch", top / "undisturbed", options, [])
        print(f"undisturbed: loss {whole}\n\n| started by | killed | trials | went on | slowest, s | final loss |\n"
              "|---|---|---|---|---|---|", flush=True)
        bad = 0
        for name in options.ways:
            try:
                title, loss, times = run_job(name, top / name, options, ["rank", "host"])
            except Lost as lost:
                print(f"| {name} | lost: {lost} | | | | |", flush=True)
                bad += 1
                continue
            bad += loss != whole
            for kind, each in times.items():
                verdict = "the same" if loss == whole else f"differs: {loss}"
                print(f"| {title} | {kind} | {len(each)} | {len(each)} | {max(each):.1f} | {verdict} |", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
