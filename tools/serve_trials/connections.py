#!/usr/bin/env python3
"""Measures what connections cost a `weft serve`: connections.py build/weft [--connections 1000] [--readers 100]

In turn it holds so many connections that say nothing, that were answered once, and that have sent 64 KiB of a longer
body; then so many clients that ask for long answers and read 100 bytes a second. Prints one JSON object: the time of
/health meanwhile and the resident memory, in all and per connection.
"""

import argparse
import contextlib
import json
import threading
import time

from asking import Server, add_common, allow_descriptors, connect_slowly, health_seconds, held, resident_mib, show

BODY_BYTES = 64 << 10


def request(path, body=b"", length=None):
    method = "POST" if body or length else "GET"
    return (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length or len(body)}\r\n\r\n").encode() + body


def say_nothing(server):
    return server.connect()


def be_answered(server):
    made = server.connect()
    made.sendall(request("/health"))
    made.recv(1000)
    return made


def send_half(server):
    made = server.connect()
    made.sendall(request("/v1/completions", b"x" * BODY_BYTES, length=2 * BODY_BYTES))
    return made


def measure_kind(server, connect, count):
    before = resident_mib(server.process.pid)
    made = [connect(server) for _ in range(count)]
    time.sleep(0.5)
    during = resident_mib(server.process.pid)
    report = {"connections": count, "resident_mib_before": before, "resident_mib_during": during,
              "kib_each": 1024 * (during - before) / count, "health": health_seconds(server, 200)}
    for each in made:
        each.close()
    time.sleep(1)
    return {**report, "resident_mib_after": resident_mib(server.process.pid)}


class Readers:
    """Clients that ask for long answers with probabilities, some 2 KB a token, and hardly read them."""

    def __init__(self, server, count):
        body = json.dumps({"prompt": "One, two, three,", "max_tokens": 3000, "ignore_eos": True, "stream": True,
                           "logprobs": 20}).encode()
        self.made = [connect_slowly(server) for _ in range(count)]
        for each in self.made:
            each.sendall(request("/v1/completions", body))
            each.setblocking(False)
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while not self.ends.wait(1):
            for each in self.made:
                with contextlib.suppress(OSError):
                    each.recv(100)

    def close(self):
        self.ends.set()
        self.thread.join()
        for each in self.made:
            each.close()


def measure_readers(server, count, seconds):
    before = resident_mib(server.process.pid)
    readers = Readers(server, count)
    most, health = before, []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        health.append(health_seconds(server, 20))
        most = max(most, resident_mib(server.process.pid))
        time.sleep(0.2)
    report = {"readers": count, "seconds": seconds, "resident_mib_before": before, "resident_mib_most": most,
              "health": {key: max(each[key] for each in health) for key in health[0]},
              "taken_for_gone": server.metric("requests_cancelled_total")}
    readers.close()
    time.sleep(2)
    return {**report, "resident_mib_after": resident_mib(server.process.pid), "held_after": held(server)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_common(parser)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60, help="for which readers are served (default: 60)")
    options = parser.parse_args()
    allow_descriptors()
    report = {}
    with Server(options.weft, options.model) as server:
        server.ask_json("/v1/completions", {"prompt": "Hello", "max_tokens": 20})
        report["alone"] = {"resident_mib": resident_mib(server.process.pid), "health": health_seconds(server, 200)}
        for connect in (say_nothing, be_answered, send_half):
            report[connect.__name__] = measure_kind(server, connect, options.connections)
        report["read_slowly"] = measure_readers(server, options.readers, options.seconds)
    show(report)


if __name__ == "__main__":
    main()
