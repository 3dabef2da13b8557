#!/usr/bin/env python3
"""Asks a `weft serve` 10,000 times while clients go at random: disconnects.py build/weft [--requests 10000] [--tp 2]

A client asks and stays, goes before the answer, in the midst of the stream, or having sent half of its request; by a
farewell or by a reset. Before and afterwards the same requests are answered, and what the server holds is counted:
slots, pages, descriptors, threads, memory. At the end a sequence that needs all the memory for keys and values of a
context has to find it. Prints one JSON object; ends with 1 if an answer is another or something is lost.
"""

import argparse
import asyncio
import collections
import json
import socket
import struct
import sys
import time

from asking import COMPLETE, Server, add_common, generator, held, random_tokens, show

CONTEXT = 1024
CHECKS = [{"prompt": "One, two, three,", "max_tokens": 24, "temperature": 0},
          {"prompt": "The capital of France is", "max_tokens": 24, "temperature": 1, "seed": 7},
          {"prompt": "Once upon a time " * 60, "max_tokens": 24, "temperature": 0}]
KINDS = {"stays": 4, "goes_before": 2, "goes_in_stream": 2, "sends_half": 1, "goes_at_once": 1}
GROWTH_MIB = 16
# Longer than the server waits for a client to close a connection that is over.
LINGERING_S = 3


def answers(server):
    return [server.ask_json(COMPLETE, body)["choices"][0]["text"] for body in CHECKS]


def body_of(rng, is_stream):
    prompt = "The number " + str(rng.randrange(10**6)) if rng.random() < 0.9 else random_tokens(rng, rng.randrange(100, 400))
    return {"prompt": prompt, "max_tokens": rng.randrange(1, 8), "ignore_eos": True, "stream": is_stream,
            "temperature": rng.choice([0, 1])}


def leave(rng, writer):
    if rng.random() < 0.5:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


async def ask(server, rng, kind):
    """What became of one request: its kind, or an unexpected status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        body = json.dumps(body_of(rng, kind == "goes_in_stream" or rng.random() < 0.5)).encode()
        head = f"POST {COMPLETE} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        whole = head.encode() + body
        writer.write(whole[:rng.randrange(1, len(whole))] if kind == "sends_half" else whole)
        await writer.drain()
        if kind == "stays":
            answer = await asyncio.wait_for(reader.read(), 60)
            return kind if answer.startswith(b"HTTP/1.1 200") else answer[:40].decode("latin-1")
        if kind == "goes_before":
            await asyncio.sleep(rng.uniform(0, 0.2))
        elif kind == "goes_in_stream":
            await asyncio.wait_for(reader.read(rng.randrange(1, 900)), 60)
        return kind
    finally:
        leave(rng, writer)


async def ask_all(server, rng, count, clients):
    numbers = iter(range(count))
    told = collections.Counter()

    async def client():
        for _ in numbers:
            kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
            told[await ask(server, rng, kind)] += 1

    await asyncio.gather(*(client() for _ in range(clients)))
    return told


def settled(server):
    """What is held once nothing runs."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        now = held(server)
        if now["slots"] == 0 and now["waiting"] == 0:
            break
        time.sleep(0.1)
    time.sleep(LINGERING_S)
    return held(server)


def faults_of(report, before, after):
    """What is not as it was."""
    faults = [name for name in ("slots", "waiting", "kv_cache_usage", "descriptors", "threads") if before[name] != after[name]]
    grown = max(b - a for a, b in zip(report["middle"]["resident_mib"], after["resident_mib"], strict=True))
    if grown > GROWTH_MIB:
        faults.append(f"{grown:.1f} MiB more in the second half")
    faults += ["another answer"] if report["answers_before"] != report["answers_after"] else []
    faults += [f"{kind}: {count}" for kind, count in report["requests"].items() if kind not in KINDS]
    faults += [] if report["whole_context_tokens"] == CONTEXT - 8 else ["no whole context"]
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_common(parser)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--tp", default="1")
    options = parser.parse_args()
    rng = generator(options.seed)
    # As little memory for keys and values and pages as there may be, so that what is lost is missed.
    flags = ["--tp", options.tp, "--ctx-size", str(CONTEXT), "--kv-cache-mb", "72", "--prefix-cache-mb", "24"]
    with Server(options.weft, options.model, *flags) as server:
        report = {"tp": options.tp, "answers_before": answers(server)}
        asyncio.run(ask_all(server, rng, 300, options.clients))
        before, start = settled(server), time.monotonic()
        told = asyncio.run(ask_all(server, rng, options.requests // 2, options.clients))
        report["middle"] = settled(server)
        told += asyncio.run(ask_all(server, rng, options.requests - options.requests // 2, options.clients))
        after = settled(server)
        report.update({"requests": dict(told), "seconds": time.monotonic() - start, "before": before, "after": after,
                       "cancelled": server.metric("requests_cancelled_total"),
                       "preempted": server.metric("num_preemptions_total"),
                       "pages_given_up": server.metric("prefix_cache_evictions_total"),
                       "answers_after": answers(server)})
        whole = server.ask_json(COMPLETE, {"prompt": random_tokens(rng, CONTEXT - 8), "max_tokens": 8, "ignore_eos": True})
        report["whole_context_tokens"] = whole["usage"]["prompt_tokens"]
    report["faults"] = faults_of(report, before, after)
    show(report)
    sys.exit(len(report["faults"]) > 0)


if __name__ == "__main__":
    main()
