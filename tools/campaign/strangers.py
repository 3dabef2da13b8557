"""Attacks by strangers: programs that are no part of a job connect to every port that it listens on."""

import http.client
import json
import os
import pathlib
import signal
import socket
import struct
import time

import mutations
from signals import free_port, on_hosts, own_ranks
from trial import processes

GARBAGE = [b"\0", b"\xff" * 64, b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"\n" * 5000,
           struct.pack("<BQ", 0, 2**63), struct.pack("<BI", 3, 2**32 - 1), struct.pack("<Q", 2**64 - 1) * 4,
           struct.pack("<BIQ", 0, 0x3C85F7CE, 1), b"\x09\xce\xf7\x85\x3c", b"\x00" * 100_000]
REQUESTS = [("/v1/chat/completions", {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
                                      "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "seed": 3, "n": 1, "stop": ["x"],
                                      "stream": False, "logprobs": True, "top_logprobs": 2}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "stream": True,
                                      "max_completion_tokens": 3, "stream_options": {"include_usage": True}}),
            ("/v1/completions", {"prompt": "We the", "max_tokens": 2, "logprobs": 1, "temperature": 0}),
            ("/v1/completions", {"prompt": [[1, 2], [3]], "max_tokens": 1, "ignore_eos": True}),
            ("/tokenize", {"content": "Hello"}), ("/detokenize", {"tokens": [1, 2, 3]})]
SANE = ("/v1/completions", {"prompt": "We the", "max_tokens": 4, "temperature": 0})


def listening_ports(trial):
    """Ports on which a process of the trial listens."""
    inodes, ports = set(), set()
    for pid in processes(trial.marker):
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        except OSError:
            continue
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                ports.add(int(words[1].rsplit(":", 1)[1], 16))
    return sorted(ports)


class Strangers:
    """Connections to ports: garbage, silence, a byte at a time; all are held until the end."""

    def __init__(self, rng):
        self.rng, self.open, self.words = rng, [], []

    def visit(self, port):
        way = self.rng.choice(["garbage", "silence", "slow", "reset", "garbage"])
        self.words.append(f"{way}@{port}")
        try:
            made = socket.create_connection(("127.0.0.1", port), timeout=1)
            if way == "garbage":
                made.sendall(self.rng.choice(GARBAGE))
            elif way == "slow":
                for byte in self.rng.choice(GARBAGE)[:4]:
                    made.sendall(bytes([byte]))
                    time.sleep(0.02)
            elif way == "reset":
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                made.close()
                return
            self.open.append(made)
        except OSError:
            pass

    def leave(self):
        for made in self.open:
            made.close()


def attack_job(trial):
    """Strangers at the ports of a job that starts: store, launcher and data. It must go on as if alone."""
    rng = trial.rng
    backend = rng.choice(["gloo", "gloo", "shm", "hierarchical"])
    verb = ["bench", str(trial.inputs.path("model")), "-p", "8", "-n", "8", "-r", "30", "--json"]
    if rng.random() < 0.4:
        commands, envs = on_hosts(trial, verb, 2, backend)
    else:
        commands, envs = own_ranks(trial, verb, 2, backend)
    strangers = Strangers(rng)
    started = [trial.start(command, env=env) for command, env in zip(commands, envs)]
    deadline = time.monotonic() + rng.uniform(0.5, 2) * trial.load.factor() ** 0.5
    while time.monotonic() < deadline and started[0].poll() is None:
        for port in listening_ports(trial):
            if len(strangers.words) < 40:
                strangers.visit(port)
        time.sleep(0.03)
    trial.note(f"{backend}; strangers: {' '.join(strangers.words)}")
    results = [trial.finish(process, 15, process.begun) for process in started]
    strangers.leave()
    for result in results:
        trial.judge(result, {0})
    trial.leaves_nothing()


def attack_place(trial):
    """Somebody else listens where the job wants to meet, and says nothing or nonsense."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(8)
        port = str(taken.getsockname()[1])
        env = {**trial.env, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
               "WEFT_START_TIMEOUT_S": "3", "RANK": trial.rng.choice("01")}
        env["LOCAL_RANK"] = env["RANK"]
        if trial.rng.random() < 0.5:
            env["WEFT_JOB_KEY"] = "a key that has sixteen characters"
        answer = trial.rng.choice([b"", b"\0" * 64, b"HTTP/1.0 400 Bad Request\r\n\r\n", b"\xff" * 5000])
        command = ["WEFT", "generate", str(trial.inputs.path("model")), "-p", "We", "-n", "1"]
        trial.note(f"rank {env['RANK']} finds {answer[:20]!r}")
        process = trial.start(command, env=env)
        taken.settimeout(0.1)
        accepted = []
        while process.poll() is None and time.monotonic() - process.begun < 20 * trial.load.factor():
            try:
                made = taken.accept()[0]
                made.sendall(answer)
                accepted.append(made)
            except OSError:
                continue
        trial.judge(trial.finish(process, 10, process.begun), {2, 4, 5})
        for made in accepted:
            made.close()
    trial.leaves_nothing(files=False)


def ask(port, path, body, timeout):
    """POST or GET; returns (status, body), or (0, why) where the server ends the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET" if body is None else "POST", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (http.client.HTTPException, ConnectionError) as error:
        return 0, repr(error).encode()
    finally:
        connection.close()


def raw_request(rng):
    """Bytes that are nearly a request."""
    body = json.dumps(REQUESTS[2][1]).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    kind = rng.randrange(6)
    if kind == 0:
        length = rng.choice([b"-1", b"18446744073709551616", b"x", b"99999999", b"", b"1, 2", b"0x10"])
        return head + b"Content-Length: " + length + b"\r\n\r\n" + body
    if kind == 1:
        size = rng.choice([b"FFFFFFFFFFFFFFFF", b"-5", b"zz", b"5;x=\x1b", b"3"])
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\n" + body + b"\r\n0\r\n\r\n"
    if kind == 2:
        return rng.choice(GARBAGE)
    if kind == 3:
        return b"GET /" + b"a" * rng.choice([10, 9000, 70000]) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    if kind == 4:
        return b"GET /health HTTP/1.1\r\nHost: " + rng.choice([b"localhost\r\nX: " + b"y" * 20000, b"\x1b[31m", b"evil.example", b"a\0b",
                                                                b"localhost\r\nHost: b"]) + b"\r\n\r\n"
    return mutations.any_bytes(rng, whole)[0]


def disturb(trial, port):
    """One request that is wrong in some way, or a client that behaves badly."""
    rng, limit = trial.rng, 10 * trial.load.factor()
    kind = rng.randrange(10)
    if kind < 6:
        path, body = rng.choice(REQUESTS)
        content, words = mutations.json_bytes(rng, json.dumps(body).encode())
        answer = ask(port, path, content, limit)
        trial.note(f"{path} {words}")
        trial.expect(answer[0] in (200, 400, 404, 413, 422, 429), f"status {answer[0]}: {answer[1][:200]!r}")
        if answer[0] != 200:
            message = json.loads(answer[1])["error"]["message"]
            trial.expect(message and "\n" not in message and "\x1b" not in message, f"the message {message!r}")
        return
    made = socket.create_connection(("127.0.0.1", port), timeout=limit)
    request = raw_request(rng)
    trial.note(f"raw {request[:60]!r}")
    try:
        made.sendall(request)
        if kind == 6:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif kind == 7:
            made.settimeout(0.2)
            made.recv(1)
    except OSError:
        pass
    made.close()


def attack_serve(trial):
    """A server among requests that are wrong and clients that go: others get the same answers as before."""
    size = trial.rng.choice(["1", "1", "2"])
    port = int(free_port())
    process = trial.start(["WEFT", "serve", str(trial.inputs.path("model")), "--port", str(port), "--tp", size])
    deadline = time.monotonic() + 10 * trial.load.factor()
    while True:
        try:
            if ask(port, "/health", None, 5)[0] == 200:
                break
        except OSError:
            pass
        trial.expect(time.monotonic() < deadline and process.poll() is None, "the server does not start")
        time.sleep(0.1)
    path, body = SANE
    limit = 10 * trial.load.factor()
    before = choices_of(ask(port, path, json.dumps(body), limit))
    for _ in range(25):
        disturb(trial, port)
    after = choices_of(ask(port, path, json.dumps(body), limit))
    trial.expect(before == after, f"another answer: {before} and {after}")
    process.send_signal(signal.SIGTERM)
    trial.judge(trial.finish(process, 10), {143})
    trial.leaves_nothing()


def choices_of(answer):
    return (answer[0], json.loads(answer[1])["choices"]) if answer[0] == 200 else answer


CLASSES = {"strangers": attack_job, "taken_place": attack_place, "serve": attack_serve}
SHARE = {"strangers": 5.0, "taken_place": 2.0, "serve": 5.0}
