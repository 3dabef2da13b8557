#!/usr/bin/env python3
"""Kills and stops ranks of a `weft serve` under load: losses.py build/weft [--tp 2] [--trials 25] [--seed 1]

Four clients stream without a pause. At a random moment one rank, drawn at random, gets SIGKILL or SIGSTOP. Counts how
the requests that were being answered ended, by an error that names the rank, by another one, or by a connection that was
closed, which is all that is left where rank 0 itself is killed; and how long it took until a new request got the right
answer. Prints one JSON object; ends with 1 if service was not back within --killed or --stopped seconds, if a request
had no end, or if a rank that was lost was not named where rank 0 was there to name it.
"""

import argparse
import collections
import json
import os
import signal
import statistics
import sys
import threading
import time

from asking import COMPLETE, Failed, Server, Stream, add_common, generator, show

CHECK = {"prompt": "One, two, three,", "max_tokens": 12, "temperature": 0}
LONG = {"prompt": "Once upon a time", "max_tokens": 3000, "ignore_eos": True}
NUM_CLIENTS = 4
# Losses sooner after a start count for the limit after which a server gives up.
SETTLED_S = 10.5
SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


class Client(threading.Thread):
    """Streams for ever; notes each end that is none of a whole answer, and goes on."""

    def __init__(self, server, ends):
        super().__init__(daemon=True)
        self.server, self.ends, self.failures = server, ends, []
        self.is_streaming = False

    def run(self):
        while not self.ends.is_set():
            try:
                for _ in Stream(self.server, LONG):
                    self.is_streaming = True
                    if self.ends.is_set():
                        return
            except Failed as failed:
                if self.is_streaming:
                    self.failures.append((time.monotonic(), str(failed)))
                self.is_streaming = False
                time.sleep(0.05)


def wait_until(is_reached, seconds):
    deadline = time.monotonic() + seconds
    while not is_reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def answer_of(server):
    """The text, or why there is none."""
    try:
        return "".join(text for _, text in Stream(server, CHECK, timeout=5)), ""
    except Failed as failed:
        return None, str(failed)


def lose(server, clients, rank, how, expected):
    """One trial: what clients were told, and when there was service again."""
    pid = server.ranks()[rank]
    for client in clients:
        client.failures.clear()
    start = time.monotonic()
    os.kill(pid, SIGNALS[how])
    told_all = wait_until(lambda: all(client.failures for client in clients), 30)
    told = [client.failures[0] if client.failures else None for client in clients]
    text = None
    while text is None and time.monotonic() - start < 60:
        text, _ = answer_of(server)
        time.sleep(0.02)
    back = time.monotonic() - start
    kinds = collections.Counter()
    for each in told:
        words = each[1] if each else "nothing"
        kinds["named" if f"rank {rank} (pid {pid}" in words else words.split(":")[0]] += 1
    return {"how": how, "rank": rank, "told": dict(kinds), "told_all": told_all, "is_right": text == expected,
            "words": sorted({each[1] for each in told if each})[:3],
            "seconds_to_error": max(each[0] for each in told if each) - start if any(told) else None, "seconds": back}


def summary(trials, how):
    chosen = [trial for trial in trials if trial["how"] == how]
    if not chosen:
        return {}
    told = collections.Counter()
    for trial in chosen:
        told.update({f"{kind}, rank {'0' if trial['rank'] == 0 else 'other than 0'}": count for kind, count in trial["told"].items()})
    seconds = [trial["seconds"] for trial in chosen]
    return {"trials": len(chosen), "of_rank_0": sum(trial["rank"] == 0 for trial in chosen), "requests_told": dict(told),
            "seconds_median": statistics.median(seconds), "seconds_max": max(seconds),
            "seconds_to_error_max": max(trial["seconds_to_error"] or 99 for trial in chosen)}


def faults_of(trials, limits):
    faults = []
    for number, trial in enumerate(trials):
        is_named = trial["rank"] == 0 or trial["told"].get("named") == NUM_CLIENTS
        is_right = trial["told_all"] and trial["is_right"] and trial["seconds"] <= limits[trial["how"]] and is_named
        if not is_right:
            faults.append({"trial": number, **trial})
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_common(parser)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--trials", type=int, default=25)
    parser.add_argument("--killed", type=float, default=5, help="seconds until service after SIGKILL (default: 5)")
    parser.add_argument("--stopped", type=float, default=12, help="the same after SIGSTOP (default: 12)")
    options = parser.parse_args()
    rng = generator(options.seed)
    trials, ends = [], threading.Event()
    with Server(options.weft, options.model, "--tp", str(options.tp)) as server:
        expected = server.ask_json(COMPLETE, CHECK)["choices"][0]["text"]
        started = time.monotonic()
        clients = [Client(server, ends) for _ in range(NUM_CLIENTS)]
        for client in clients:
            client.start()
        for _ in range(options.trials):
            time.sleep(max(0, started + SETTLED_S - time.monotonic()) + rng.uniform(0, 2))
            if not wait_until(lambda: all(client.is_streaming for client in clients), 30):
                raise RuntimeError(f"clients got no service: {server.log()[-2000:]}")
            how = rng.choice(list(SIGNALS))
            trials.append(lose(server, clients, rng.randrange(options.tp), how, expected))
            started = time.monotonic()
            print(json.dumps(trials[-1]), file=sys.stderr, flush=True)
        ends.set()
    faults = faults_of(trials, {"killed": options.killed, "stopped": options.stopped})
    show({"tp": options.tp, "trials": len(trials), **{how: summary(trials, how) for how in SIGNALS}, "faults": faults})
    sys.exit(len(faults) > 0)


if __name__ == "__main__":
    main()
