#!/usr/bin/env python3
"""Attacks a built weft and counts what it does wrong: python3 tools/campaign/campaign.py build/weft

Trials are drawn by a seed, run until their number or the time is reached, and judged; README.md
says what is attacked and what must hold. Exits with 1 if a trial failed.
"""

import argparse
import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import files
import signals
import strangers
import surroundings
import writers
from inputs import Inputs
from trial import MARKER, Failure, Load, Trial, processes

ATTACKS = (files, signals, surroundings, writers, strangers)
CLASSES = {name: attack for attacks in ATTACKS for name, attack in attacks.CLASSES.items()}
# What starts ranks, waits and ends counts for more than what reads one file.
SHARE = {name: 1.0 for name in CLASSES} | {name: share for attacks in ATTACKS for name, share in attacks.SHARE.items()}


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weft", type=pathlib.Path, help="the program, with weft-tensors beside it")
    parser.add_argument("--seconds", type=float, default=170, help="when no further trial is begun (default: 170)")
    parser.add_argument("--trials", type=int, default=10**9, help="the most trials (default: what the time allows)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--classes", default=",".join(CLASSES), help="names with commas between (default: all)")
    parser.add_argument("--only", type=int, help="one trial of one class, to see a failure again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trials side by side (default: processors)")
    parser.add_argument("--json", type=pathlib.Path, help="also write the table here")
    parser.add_argument("--keep", action="store_true", help="keep the folders of trials that failed")
    got = parser.parse_args()
    unknown = [name for name in got.classes.split(",") if name not in CLASSES]
    if unknown:
        parser.error(f"--classes: unknown {', '.join(unknown)}; there are {', '.join(CLASSES)}")
    return got


def enter_own_mounts():
    """Starts anew in mounts of our own, with a /dev/shm and disks that nobody else sees, where the
    system allows it. Returns whether it does."""
    if os.environ.get("WEFT_CAMPAIGN_MOUNTS"):
        return os.environ["WEFT_CAMPAIGN_MOUNTS"] == "own"
    command = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    mount = "mount -t tmpfs -o size=2g tmpfs /dev/shm"
    works = shutil.which("unshare") and subprocess.run([*command, "sh", "-c", mount], capture_output=True,
                                                       check=False).returncode == 0
    os.environ["WEFT_CAMPAIGN_MOUNTS"] = "own" if works else "none"
    if works:
        script = f"{mount} && exec \"$@\""
        os.execvp("unshare", [*command, "sh", "-c", script, "sh", sys.executable, *sys.argv])
    return False


class Row:
    """What the table says of a class."""

    def __init__(self):
        self.trials, self.failures, self.seconds, self.begun = 0, [], 0.0, 0
        self.slowest, self.slowest_trial = 0.0, 0

    def as_json(self):
        return {"trials": self.trials, "failures": self.failures, "slowest_s": round(self.slowest, 2),
                "slowest_trial": self.slowest_trial}


class Campaign:
    """Draws trials class by class, each class for its share of the time."""

    def __init__(self, args, folder, can_mount):
        self.args, self.folder, self.can_mount = args, pathlib.Path(folder), can_mount
        self.weft = args.weft.resolve()
        self.load = Load()
        self.inputs = Inputs(self.weft, self.folder / "inputs")
        self.rows = {name: Row() for name in args.classes.split(",")}
        self.lock = threading.Lock()
        self.begun = time.monotonic()

    def next_trial(self):
        """The class that has had the least of its share, and the trial's number in it."""
        with self.lock:
            used = sum(row.begun for row in self.rows.values())
            if used >= self.args.trials or time.monotonic() - self.begun > self.args.seconds:
                return None
            name = min(self.rows, key=lambda name: ((self.rows[name].seconds + 0.05 * self.rows[name].begun) / SHARE[name]))
            number = self.rows[name].begun
            self.rows[name].begun += 1
            return name, number

    def work(self):
        while (drawn := self.next_trial()) is not None:
            self.run_trial(*drawn)

    def run_trial(self, name, number):
        folder = self.folder / f"{name}-{number}"
        begun = time.monotonic()
        trial = Trial(f"{name}-{number}", random.Random(f"{self.args.seed} {name} {number}"), folder, self)
        failure = None
        try:
            CLASSES[name](trial)
        except Failure as error:
            failure = str(error)
        except Exception:  # A mistake of an attack is a failure of its trial, not the end of the others.
            failure = "the campaign itself: " + " | ".join(traceback.format_exc(limit=-3).splitlines())
        trial.end_all()
        if self.args.only is not None:
            print("; ".join(trial.notes))
        with self.lock:
            row = self.rows[name]
            row.trials += 1
            row.seconds += time.monotonic() - begun
            row.slowest, row.slowest_trial = max((row.slowest, row.slowest_trial), (trial.slowest, number))
            if failure:
                row.failures.append(self.describe(trial, name, number, failure))
        if not (failure and self.args.keep):
            shutil.rmtree(folder, ignore_errors=True)

    def describe(self, trial, name, number, failure):
        again = f"{shlex.quote(sys.argv[0])} {self.args.weft} --seed {self.args.seed} --classes {name} --only {number}"
        print(f"FAILED {name} {number}: {failure}\n  {'; '.join(trial.notes)}\n  again: {again}", flush=True)
        return {"trial": number, "failure": failure, "how": trial.notes, "again": again}

    def run(self):
        if self.args.only is not None:
            for name in self.rows:
                self.run_trial(name, self.args.only)
            return
        workers = [threading.Thread(target=self.work) for _ in range(self.args.jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def report(self):
        print(f"{'class':<18} {'trials':>7} {'failures':>9} {'slowest':>9}")
        for name, row in self.rows.items():
            print(f"{name:<18} {row.trials:>7} {len(row.failures):>9} {row.slowest:>7.2f} s (trial {row.slowest_trial})")
        trials = sum(row.trials for row in self.rows.values())
        failures = sum(len(row.failures) for row in self.rows.values())
        seconds = time.monotonic() - self.begun
        print(f"{'all':<18} {trials:>7} {failures:>9} {seconds:>7.0f} s; seed {self.args.seed}; limits of time stretched "
              f"by {self.load.mean():.1f} in the mean, {self.load.highest:.1f} at most, as the machine was busy")
        if self.args.json:
            table = {"seed": self.args.seed, "seconds": round(seconds), "trials": trials, "failures": failures,
                     "load": {"mean": round(self.load.mean(), 2), "highest": round(self.load.highest, 2)},
                     "own_mounts": self.can_mount,
                     "classes": {name: row.as_json() for name, row in self.rows.items()}}
            self.args.json.write_text(json.dumps(table, indent=2) + "\n")
        return failures


def end_programs(number, frame):
    """Whoever ends the campaign ends what it has started."""
    del frame
    for pid in processes(f"{MARKER}={os.getpid()}/".encode()):
        os.kill(pid, signal.SIGKILL)
    os._exit(128 + number)


def main():
    args = options()
    can_mount = enter_own_mounts()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_programs)
    with tempfile.TemporaryDirectory(prefix="weft-campaign-", ignore_cleanup_errors=True) as folder:
        campaign = Campaign(args, folder, can_mount)
        campaign.run()
        failures = campaign.report()
        if args.keep and failures:
            kept = pathlib.Path(tempfile.mkdtemp(prefix="weft-campaign-kept-"))
            shutil.copytree(folder, kept, dirs_exist_ok=True, symlinks=True)
            print(f"kept: {kept}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
