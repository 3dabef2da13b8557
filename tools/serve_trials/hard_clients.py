"""Behaves to a `weft serve` as clients do that go, crawl, sleep or come in thousands: hard_clients.py WEFT MODEL.

What it must keep: other clients' answers, its slots, its descriptors, and its life. Ends with 1 if it does not. The
slowest case, a reader that reads nothing for 30 s, waits beside the others. Python's standard library alone.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import random
import resource
import signal
import socket
import struct
import sys
import threading
import time
import traceback

from asking import Server

PROMPT = {"prompt": "One, two, three,", "temperature": 0, "ignore_eos": True}
LONG = {**PROMPT, "max_tokens": 4000, "stream": True}


def expect(is_right, what, got):
    if not is_right:
        raise AssertionError(f"expected {what}, got {got!r}")


def head(length, path="/v1/completions"):
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n".encode()


def open_request(server, body, received_bytes=None, path="/v1/completions"):
    """A socket on which a request has been sent."""
    made = socket.socket()
    if received_bytes:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
    made.settimeout(60)
    made.connect(("127.0.0.1", server.port))
    text = json.dumps(body).encode()
    made.sendall(head(len(text), path) + text)
    return made


def num_descriptors(server):
    """Once all that have connected by now are accepted: clients are in their order."""
    server.ask("/health")
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def used_slots(server):
    return [slot for slot in json.loads(server.ask("/slots")[2]) if slot["is_processing"]]


def wait_until(is_reached, what, seconds):
    """How long it took."""
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        if is_reached():
            return time.monotonic() - start
        time.sleep(0.02)
    raise AssertionError(f"expected {what} within {seconds} s")


def ends_within(made, seconds):
    """Whether the server ends the connection, whatever it still sends."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(ConnectionError, TimeoutError):
        while (left := deadline - time.monotonic()) > 0:
            made.settimeout(left)
            if not made.recv(1 << 16):
                return True
        return False
    return time.monotonic() < deadline


def is_open(server, client_port):
    """Whether the server keeps a connection open."""
    ends = [f":{server.port:04X}", f":{client_port:04X}"]
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(words[1].endswith(ends[0]) and words[2].endswith(ends[1]) and words[3] == "01" for words in lines)


class Crawlers:
    """Clients that send nothing, a byte now and then, or read nothing of a long answer, from now on."""

    def __init__(self, server):
        # More than the system keeps for a connection.
        self.sleeper = open_request(server, {"content": "a b " * (1 << 20)}, received_bytes=4096, path="/tokenize")
        self.sleeper.recv(1)
        self.server, self.start, self.sleeper_end = server, time.monotonic(), None
        self.silent = [server.connect() for _ in range(200)]
        self.drips = [server.connect() for _ in range(50)]
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.drip)
        self.thread.start()

    def drip(self):
        port = self.sleeper.getsockname()[1]
        while not self.ends.wait(0.5):
            for drip in self.drips:
                with contextlib.suppress(OSError):
                    drip.send(b"G")
            if self.sleeper_end is None and not is_open(self.server, port):
                self.sleeper_end = time.monotonic() - self.start

    def check(self, server):
        """Who sends too slowly has 10 s, who reads nothing 30 s."""
        wait_until(lambda: self.sleeper_end is not None, "an end of one that reads nothing", 40)
        expect(28 < self.sleeper_end < 36, "an end after 30 s", self.sleeper_end)
        self.ends.set()
        self.thread.join()
        for drip in self.drips:
            expect(ends_within(drip, 1), "an end after 10 s for a request", drip)
        expect(server.ask("/health")[0] == 200, "health", server.log())
        for made in [self.sleeper, *self.silent, *self.drips]:
            made.close()


def check_health_beside_a_thousand(server):
    """1,000 connections that are open and say nothing take no time of those that ask."""
    before = num_descriptors(server)
    idle = [server.connect() for _ in range(1000)]
    times = []
    for _ in range(50):
        start = time.monotonic()
        expect(server.ask("/health")[0] == 200, "health", server.log())
        times.append(time.monotonic() - start)
    expect(sorted(times)[25] < 0.05, "a median of less than 50 ms", sorted(times)[25])
    for made in idle:
        made.close()
    wait_until(lambda: num_descriptors(server) <= before + 1, "no descriptors of clients that have gone", 5)


def leave_before(server):
    return open_request(server, LONG), lambda: True


def leave_in_prompt(server):
    # Another one each time, of which no page is kept.
    first = random.randrange(100, 20_000)
    made = open_request(server, {**LONG, "prompt": [first + i % 4000 for i in range(3500)]})
    return made, lambda: any(0 < slot["n_prompt_tokens_processed"] < 3500 == slot["n_prompt_tokens"] for slot in used_slots(server))


def leave_in_stream(server):
    made = open_request(server, LONG)
    made.recv(500)
    return made, lambda: len(used_slots(server)) > 1


def leave_before_the_whole(server):
    return open_request(server, {**LONG, "stream": False}), lambda: any(
        0 < slot["n_decoded"] < 300 and slot["n_prompt_tokens"] == 6 for slot in used_slots(server))


def leave_half_sent(server):
    made = server.connect()
    made.sendall(head(1000) + b'{"prompt": ')
    return made, lambda: True


def reset(made):
    """Closes it as a program that is killed may: without a farewell."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()


def check_leaving(server):
    """A client that goes, at any time, ends its own request within a second, and no other."""
    body = {**PROMPT, "max_tokens": 200}
    alone = server.ask_json("/v1/completions", body)["choices"]
    beside = []
    neighbour = threading.Thread(target=lambda: beside.extend(server.ask_json("/v1/completions", body)["choices"] for _ in range(4)))
    used = len(used_slots(server))
    neighbour.start()
    for leave in (leave_before, leave_in_prompt, leave_in_stream, leave_before_the_whole, leave_half_sent):
        for end in (socket.socket.close, reset):
            cancelled = server.metric("requests_cancelled_total")
            made, is_there = leave(server)
            wait_until(is_there, leave.__name__, 20)
            end(made)
            wait_until(lambda: len(used_slots(server)) <= used + 1, "a free slot", 2)
            if leave not in (leave_before, leave_half_sent):
                wait_until(lambda: server.metric("requests_cancelled_total") > cancelled, "one more that was cancelled", 2)
    neighbour.join()
    expect(beside == [alone] * 4, alone, beside)


def check_leaving_the_queue(server):
    """One that waits, and goes, is forgotten; the others that wait are not."""
    runs = [open_request(server, LONG) for _ in range(4)]
    wait_until(lambda: len(used_slots(server)) == 4, "four that run", 20)
    waits = [open_request(server, LONG) for _ in range(3)]
    wait_until(lambda: server.metric("num_requests_waiting") >= 3, "three that wait", 5)
    waiting = server.metric("num_requests_waiting")
    waits[1].close()
    wait_until(lambda: server.metric("num_requests_waiting") == waiting - 1, "one less", 2)
    for made in [*runs, *waits]:
        made.close()
    wait_until(lambda: server.metric("num_requests_waiting") == 0 and len(used_slots(server)) <= 1, "none that wait", 5)


def check_many_bytes_unread(server):
    """What waits for a reader that reads nothing is bounded: it is taken for gone at 1 MiB."""
    before = server.metric("requests_cancelled_total")
    body = {"messages": [{"role": "user", "content": "Tell a story."}], "max_tokens": 3000, "ignore_eos": True, "stream": True,
            "n": 3, "logprobs": True, "top_logprobs": 20}
    sleeper = open_request(server, body, received_bytes=4096, path="/v1/chat/completions")
    wait_until(lambda: server.metric("requests_cancelled_total") > before, "an end of one that reads nothing", 25)
    sleeper.close()


async def ask_at_once(server, number):
    """Status, whether it says when to come back, and the text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        text = json.dumps({**PROMPT, "max_tokens": 1}).encode()
        writer.write(head(len(text)) + text)
        answer = await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()
    fields, _, body = answer.partition(b"\r\n\r\n")
    told = json.loads(body)
    return int(fields.split(b" ")[1]), b"\r\nRetry-After: 1\r\n" in fields, told["choices"][0]["text"] if "choices" in told else ""


def check_a_thousand_at_once(server):
    """As many as there is room for are answered, the others are told to come back, none is lost."""
    before = num_descriptors(server)
    refused = server.metric("requests_refused_total")

    async def ask_all():
        return await asyncio.gather(*(ask_at_once(server, number) for number in range(1000)))

    answers = asyncio.run(ask_all())
    answered = [answer for answer in answers if answer[0] == 200]
    expect(len(answered) >= 64 and len({answer[2] for answer in answered}) == 1, "the same answer to those taken", answered[:3])
    expect(all(answer[:2] == (429, True) for answer in answers if answer[0] != 200), "429 with Retry-After to the others",
           [answer for answer in answers if answer[0] not in (200, 429)][:3])
    told = server.metric("requests_refused_total") - refused
    expect(told == 1000 - len(answered), "as many refused as are counted", (told, len(answered)))
    wait_until(lambda: num_descriptors(server) <= before + 1, "no descriptors left", 5)


def check_few_descriptors(weft, model):
    """Where the system gives no more descriptors, clients wait; once some go, they are answered."""
    with Server(weft, model, open_files=40) as server:
        idle = [server.connect() for _ in range(60)]
        late = server.connect(timeout=1)
        late.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        expect(not_answered(late), "no answer without a descriptor", "an answer")
        for made in idle:
            made.close()
        late.settimeout(5)
        expect(late.recv(1000).startswith(b"HTTP/1.1 200"), "an answer afterwards", None)
        answer = server.ask_json("/v1/completions", {**PROMPT, "max_tokens": 4})
        expect(answer["choices"][0]["text"], "an answer", answer)


def not_answered(made):
    try:
        return made.recv(1) is None
    except TimeoutError:
        return True


def set_memory(server, limit):
    """Returns the former limit of its addresses."""
    former = resource.prlimit(server.process.pid, resource.RLIMIT_AS)
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, former[1]))
    return former[0]


def half_sent(server):
    """A client that has sent most of 8 MiB, or what the server had memory for."""
    made = server.connect()
    with contextlib.suppress(OSError):
        made.sendall(head(8 << 20) + b"x" * ((8 << 20) - 100))
    return made


def refusal_of(made):
    """What it was told by now."""
    made.settimeout(0.05)
    with contextlib.suppress(OSError):
        return made.recv(4096)
    return b""


def check_little_memory(weft, model):
    """Requests that there is no memory for are refused with 503, and the server lives."""
    with Server(weft, model) as server:
        # What answers take is there once one has been given.
        answer = server.ask_json("/v1/completions", {**PROMPT, "max_tokens": 4})["choices"]
        used = int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        former = set_memory(server, used + (32 << 20))
        clients = [half_sent(server) for _ in range(20)]
        told = [refusal_of(made) for made in clients]
        refused = [each for each in told if b"503" in each and b"no memory for this request; come back later" in each]
        expect(len(refused) > 5, "503 to some", (len(refused), told[:3], server.log()))
        for made in clients:
            made.close()
        expect(server.ask("/health")[0] == 200, "health", server.log())
        set_memory(server, former)
        expect(server.ask_json("/v1/completions", {**PROMPT, "max_tokens": 4})["choices"] == answer, answer, server.log())


def check_draining(weft, model):
    """SIGTERM: what runs is answered to its end, what comes gets 503. SIGINT likewise, with its own status."""
    for number, status in [(signal.SIGTERM, 143), (signal.SIGINT, 130)]:
        with Server(weft, model) as server:
            stream = open_request(server, {**LONG, "max_tokens": 120})
            stream.recv(300)
            server.process.send_signal(number)
            wait_until(lambda: server.ask("/health")[0] == 503, "503 of health", 2)
            code, fields, text = server.ask("/v1/completions", {**PROMPT, "max_tokens": 4})
            told = json.loads(text)["error"]["message"]
            expect((code, fields["Retry-After"], told) == (503, "1", "the server is about to end"), "503", (code, text))
            rest = b""
            while piece := stream.recv(1 << 16):
                rest += piece
            expect(b'"finish_reason":"length"' in rest and b"data: [DONE]" in rest, "the whole answer", rest[-300:])
            expect(server.process.wait(10) == status, status, server.process.returncode)


def run(failures, check, *arguments):
    start = time.monotonic()
    try:
        check(*arguments)
    except Exception:  # The other checks have something to say, too.
        failures.append(check.__name__)
        print(f"{check.__name__}: {traceback.format_exc(limit=-3)}")
    print(f"{check.__name__}: {time.monotonic() - start:.1f} s", flush=True)


def main():
    weft, model = sys.argv[1:]
    # What a shell starts in the background ignores SIGINT, and so would the servers.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    failures = []
    with Server(weft, model, "--parallel", "4") as server:
        crawlers = Crawlers(server)
        for check in (check_health_beside_a_thousand, check_leaving, check_leaving_the_queue, check_many_bytes_unread,
                      check_a_thousand_at_once):
            run(failures, check, server)
        for check in (check_few_descriptors, check_little_memory, check_draining):
            run(failures, check, weft, model)
        run(failures, crawlers.check, server)
        crawlers.ends.set()
    print(f"{len(failures)} checks failed")
    sys.exit(len(failures) > 0)


if __name__ == "__main__":
    main()
