#!/usr/bin/env python3
"""Kills training runs at random moments and checks what is left to resume from.

Usage: kill_runs.py [KILLS [WEFT]]     (default: 200 build/weft)

A run of two ranks saves every EVERY steps in the background. Each time it is killed, one rank or
both, a while after its first step and resumed with --resume=auto. What is lost is the distance from
the last step that its metrics tell of to the newest complete checkpoint: EVERY steps, and those
that went by while the ranks wrote. At the end the resumed run's losses must be those of a run that
was never killed, bit for bit.
"""

import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EVERY = 5
STEPS = 100_000


def config_text(folder):
    return f"""[model]
hidden_size = 64
num_layers = 2
num_heads = 4
tokenizer = "{ROOT}/examples/train/bytes"
[mesh]
dp = 2
[batch]
sequences = 4
sequence_length = 64
[train]
steps = {STEPS}
seed = 3
[schedule]
name = "constant"
[data]
train = ["{ROOT}/tests/generate/data/us_constitution.txt"]
[log]
peak_flops = 1e9
tensorboard = false
[checkpoint]
folder = "{folder}"
every = {EVERY}
async = true
"""


def steps_of(run):
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def written_at(run):
    """In seconds, as time.time() counts."""
    path = run / "metrics.jsonl"
    return path.stat().st_mtime if path.exists() else 0


def newest(run):
    folders = (run / "checkpoints").glob("step-*")
    steps = [int(f.name[5:]) for f in folders if f.name[5:].isdigit()]
    return max(steps, default=0)


def ranks_of(process):
    found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def run_and_kill(weft, config, run):
    """Returns the last step and the newest checkpoint after the kill."""
    saved, start = newest(run), time.time()
    process = subprocess.Popen([weft, "train", str(config), "--resume=auto"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    # Until then the metrics are those of the run before, which went on beyond what it saved.
    while written_at(run) <= start or len(steps_of(run)) <= saved:
        time.sleep(0.01)
        if time.monotonic() > deadline:
            process.kill()
            sys.exit("no step within a minute")
        if process.poll() is not None:
            sys.exit(f"ended by itself: {process.stderr.read().decode()}")
    time.sleep(random.uniform(0, 0.6))
    ranks = ranks_of(process)
    for pid in ranks if random.random() < 0.5 else [random.choice(ranks)]:
        subprocess.run(["kill", "-9", str(pid)], check=False)
    process.communicate()
    return steps_of(run)[-1]["step"], newest(run)


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    weft = sys.argv[2] if len(sys.argv) > 2 else str(ROOT / "build/weft")
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config = folder / "run.toml"
        config.write_text(config_text(folder / "run"))
        lost = []
        for _ in range(kills):
            step, saved = run_and_kill(weft, config, folder / "run")
            lost.append(step - saved)
        whole = folder / "whole.toml"
        last = newest(folder / "run")
        whole.write_text(config_text(folder / "whole"))
        subprocess.run([weft, "train", str(whole), "--steps", str(last)], check=True,
                       stderr=subprocess.DEVNULL)
        expected = [step["loss"] for step in steps_of(folder / "whole")]
        got = [step["loss"] for step in steps_of(folder / "run")][:last]
    print(f"{kills} kills, {last} steps kept; lost at most {max(lost)} steps, "
          f"more than {EVERY} {sum(1 for each in lost if each > EVERY)} times; "
          f"losses {'equal' if got == expected else 'DIFFER'}")
    sys.exit(0 if got == expected else 1)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
