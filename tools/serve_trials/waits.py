#!/usr/bin/env python3
"""Measures how long tokens of a running stream wait for another's prompt: waits.py build/weft [--prompt 4096]

One client streams. Its times between tokens are taken alone, before and after each round, as they grow with its text,
and from the moment that another one asks with a prompt of so many tokens until that has its first token; for each of
--step-tokens a server of its own. Then, with the default,
the time to the first token of a prompt of --prefix tokens, and of others that begin with the same ones. Prints one JSON
object.
"""

import argparse
import threading
import time

from asking import Server, Stream, add_common, first_token_seconds, generator, percentile, random_tokens, show


class Running(threading.Thread):
    """A stream, and when its tokens came."""

    def __init__(self, server):
        super().__init__(daemon=True)
        # A bias to one token, so that every token is a piece of text.
        space = server.ask_json("/tokenize", {"content": " a"})["tokens"][0]
        self.stream = Stream(server, {"prompt": "Once", "max_tokens": 6000, "ignore_eos": True, "temperature": 0,
                                      "logit_bias": {str(space): 100}})
        self.times = []
        self.is_over = False

    def run(self):
        for at, _ in self.stream:
            self.times.append(at)
            if self.is_over:
                break
        self.stream.close()

    def alone(self):
        """Between tokens of the next seconds, in which nobody else asks."""
        time.sleep(3)
        now = time.monotonic()
        return self.gaps(now - 2, now)

    def gaps(self, begin, end):
        """Between tokens of which the later one came in this time."""
        times = list(self.times)
        return [b - a for a, b in zip(times, times[1:]) if begin < b <= end]


def told(gaps):
    return {"tokens": len(gaps), "p50_ms": 1000 * percentile(gaps, 0.5), "p99_ms": 1000 * percentile(gaps, 0.99),
            "max_ms": 1000 * max(gaps)}


def measure_step(options, rng, step_tokens):
    flags = ["--ctx-size", "8192"] + (["--step-tokens", str(step_tokens)] if step_tokens else [])
    with Server(options.weft, options.model, *flags) as server:
        running = Running(server)
        running.start()
        alone, during, first = running.alone(), [], []
        for _ in range(options.rounds):
            begin = time.monotonic()
            first.append(first_token_seconds(server, random_tokens(rng, options.prompt)))
            during += running.gaps(begin, time.monotonic())
            alone += running.alone()
        running.is_over = True
        report = {"alone": told(alone), "during": told(during), "first_token_s": first}
        report["p99_times"] = report["during"]["p99_ms"] / report["alone"]["p99_ms"]
        return report


def measure_prefix(options, rng):
    with Server(options.weft, options.model, "--ctx-size", "8192") as server:
        first_token_seconds(server, random_tokens(rng, 300))
        shared = random_tokens(rng, options.prefix)
        first = first_token_seconds(server, shared + random_tokens(rng, 16))
        others = [first_token_seconds(server, shared + random_tokens(rng, 16)) for _ in range(10)]
        return {"tokens": options.prefix, "first_ms": 1000 * first, "others_median_ms": 1000 * percentile(others, 0.5),
                "others_max_ms": 1000 * max(others), "part": percentile(others, 0.5) / first}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_common(parser)
    parser.add_argument("--prompt", type=int, default=4096)
    parser.add_argument("--prefix", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step-tokens", default="0", help="numbers with commas between them; 0: the default (default: 0)")
    options = parser.parse_args()
    rng = generator(options.seed)
    steps = {word: measure_step(options, rng, int(word)) for word in options.step_tokens.split(",")}
    show({"prompt_tokens": options.prompt, "step_tokens": steps, "shared_prefix": measure_prefix(options, rng)})


if __name__ == "__main__":
    main()
