"""Sends requests that are wrong, hostile or odd to a `weft serve` and compares what comes back: http_cases.py WEFT MODEL.

Each row of the tables is a request's bytes, the status and the text of the error. Ends with 1 if an answer is another.
Python's standard library alone.
"""

import json
import pathlib
import socket
import sys
import time

from server import Server

KEY, CONTEXT, MIB = "secret", 512, 1 << 20
CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
GET = ("/metrics", "/v1/models", "/slots")
POST = ("/tokenize", "/detokenize", CHAT, COMPLETE, "/v1/embeddings", "/v1/responses")
ORIGIN = "https://mine.example"


def request(method, path, body=b"", fields=(), key=KEY, host="localhost"):
    """The bytes of one request on a connection of its own."""
    body = body if isinstance(body, bytes) else body.encode()
    named = {"Host": host, "Connection": "close", "Content-Length": str(len(body))}
    if key is not None:
        named["Authorization"] = f"Bearer {key}"
    lines = [f"{name}: {value}" for name, value in {**named, **dict(fields)}.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines]).encode("latin-1") + b"\r\n\r\n" + body


def post(path, body, **more):
    return request("POST", path, body if isinstance(body, (str, bytes)) else json.dumps(body), **more)


def raw(*lines, body=b""):
    """A request of these lines, whatever they are."""
    head = ["POST /tokenize HTTP/1.1", "Host: localhost", f"Authorization: Bearer {KEY}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def chat(members):
    """A chat whose body has these members, JSON as it is written."""
    return post(CHAT, '{"messages": [{"role": "user", "content": "Hi"}], ' + members + "}")


def exchange(server, data):
    """The status, header fields and body that come back until the server ends the connection."""
    with server.connect(timeout=60) as made:
        try:
            made.sendall(data)
        except OSError:
            pass  # It may refuse before it has read all.
        answer = b""
        try:
            while piece := made.recv(1 << 16):
                answer += piece
        except ConnectionError:
            pass
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
    return int(lines[0].split(" ")[1]) if len(lines[0]) > 9 else 0, fields, body


def whole(low, high):
    return f"expected a whole number from {low} to {high}"


TOKENS, SEED = whole(1, 2147483647), whole(-9223372036854775808, 9223372036854775807)
ANY_STOP = "expected a string or at most 16 of them in a list"
SENT = "; leave it out"

# Members of a chat's body, and the error's param and message after it.
FIELDS = [
    ('"n": 1000000000', "n", "got 1000000000, " + whole(1, 8)),
    ('"n": 0', "n", "got 0, " + whole(1, 8)),
    ('"n": "two"', "n", 'got "two", ' + whole(1, 8)),
    ('"max_tokens": -1', "max_tokens", "got -1, " + TOKENS),
    ('"max_tokens": 2.5', "max_tokens", "got 2.5, " + TOKENS),
    ('"max_completion_tokens": "5"', "max_completion_tokens", 'got "5", ' + TOKENS),
    ('"temperature": "hot"', "temperature", 'got "hot", expected a number from 0 to 2'),
    ('"temperature": -0.1', "temperature", "got -0.1, expected a number from 0 to 2"),
    ('"temperature": true', "temperature", "got true, expected a number from 0 to 2"),
    ('"top_p": 2', "top_p", "got 2, expected a number from 0 to 1"),
    ('"min_p": -1', "min_p", "got -1, expected a number from 0 to 1"),
    ('"top_k": -2', "top_k", "got -2, " + whole(-1, 2147483647)),
    ('"seed": 18446744073709551616', "seed", "got 1.8446744073709552e+19, " + SEED),
    ('"seed": 9223372036854775808', "seed", "got 9223372036854775808, " + SEED),
    ('"seed": 1.5', "seed", "got 1.5, " + SEED),
    ('"presence_penalty": 3', "presence_penalty", "got 3, expected a number from -2 to 2"),
    ('"frequency_penalty": []', "frequency_penalty", "got [], expected a number from -2 to 2"),
    ('"repetition_penalty": 0', "repetition_penalty", "got 0, expected a number from 0.01 to 100"),
    ('"repeat_last_n": -2', "repeat_last_n", "got -2, " + whole(-1, 2147483647)),
    ('"logit_bias": [1]', "logit_bias",
     "expected an object of token ids with numbers from -100 to 100, at most 4096 of them"),
    ('"logit_bias": {"99999999": 1}', "logit_bias", "token 99999999, expected 0 to 49151"),
    ('"stop": ""', "stop", "a text of 0 bytes, expected 1 to 256"),
    ('"stop": ["a", ""]', "stop", "a text of 0 bytes, expected 1 to 256"),
    ('"stop": "' + "x" * 257 + '"', "stop", "a text of 257 bytes, expected 1 to 256"),
    ('"stop": [' + ", ".join(['"a"'] * 17) + "]", "stop", "got a value of 69 bytes, " + ANY_STOP),
    ('"stop": 7', "stop", "got 7, " + ANY_STOP),
    ('"stream": "yes"', "stream", 'got "yes", expected true or false'),
    ('"stream_options": {"include_usage": true}', "stream_options", "needs stream: true"),
    ('"logprobs": 1', "logprobs", "got 1, expected true or false"),
    ('"logprobs": true, "top_logprobs": 21', "top_logprobs", "got 21, " + whole(0, 20)),
    ('"ignore_eos": 1', "ignore_eos", "got 1, expected true or false"),
    ('"response_format": "json"', "response_format", "expected an object"),
    ('"response_format": {"type": "json_schema", "json_schema": {}}', "response_format.json_schema",
     "expected an object with a schema"),
    ('"chat_template_kwargs": 1', "chat_template_kwargs", "expected an object"),
    ('"functions": [{}]', "functions", "not supported by this server" + SENT),
]
MESSAGES = [
    ("[]", "messages", "expected a list of 1 to 4096 messages"),
    ("[" + ", ".join(["{}"] * 4097) + "]", "messages", "expected a list of 1 to 4096 messages"),
    ("[5]", "messages[0]", "expected an object"),
    ('[{"content": "a"}]', "messages[0].role", "got '', expected system, user, assistant or tool"),
    ('[{"role": "user"}]', "messages[0].content", "missing, expected a text"),
    ('[{"role": "user", "content": 5}]', "messages[0].content", "expected a string or a list of parts"),
    ('[{"role": "user", "content": [{"type": "image_url"}]}]', "messages[0].content",
     "a part of type 'image_url', expected text; this model reads nothing else"),
]
# A path, its whole body, the error's param and its message.
BODIES = [
    (CHAT, "", None, "body: not valid JSON at byte 0: "),
    (CHAT, "{", None, "body: not valid JSON at byte 1: "),
    (CHAT, "[]", None, "the body is no JSON object"),
    (CHAT, '{"temperature": NaN}', None, "body: not valid JSON at byte 16: "),
    (CHAT, '{"temperature": 1e400}', None, "body: not valid JSON: "),
    (CHAT, '{"a": ' * 100_000, None, "body: JSON nested deeper than 64 levels; flatten it"),
    (CHAT, "[" * 100_000, None, "body: JSON nested deeper than 64 levels; flatten it"),
    (CHAT, '{"n": 1, "n": 2}', None, "body: duplicate JSON key 'n'; each key may stand once"),
    (CHAT, b'{"a": "\xff"}', None, "body: not valid JSON at byte 7: "),
    (CHAT, '{"a": "\\ud800"}', None, "body: not valid JSON at byte "),
    (CHAT, '{"a": "\0"}', None, "body: not valid JSON at byte 7: a NUL byte"),
    (CHAT, b"\xef\xbb\xbf{}", None, "body: not valid JSON at byte 0: a byte order mark; save the file without it"),
    (COMPLETE, "{}", "prompt", "prompt: missing, expected a text"),
    (COMPLETE, '{"prompt": []}', "prompt", "prompt: a list of 0 prompts, expected 1 to 64"),
    (COMPLETE, '{"prompt": ""}', "prompt", "prompt: no tokens, expected at least one"),
    (COMPLETE, '{"prompt": [1, -1]}', "prompt", "prompt: token -1, expected 0 to 49151"),
    (COMPLETE, '{"prompt": [49152]}', "prompt", "prompt: token 49152, expected 0 to 49151"),
    (COMPLETE, '{"prompt": [1, "a"]}', "prompt", "prompt: expected a string, token ids, or a list of either"),
    (COMPLETE, '{"prompt": "a", "logprobs": 21}', "logprobs", "logprobs: got 21, " + whole(0, 20)),
    (COMPLETE, '{"prompt": "a", "best_of": 2}', "best_of", "best_of: not supported by this server" + SENT),
    (COMPLETE, '{"prompt": "a", "grammar": "root ::= root"}', "response_format", "response_format: grammar: no text begins it, expected one"),
    (COMPLETE, json.dumps({"prompt": "a", "grammar": "root ::= " + "(" * 10_000 + '"a"' + ")" * 10_000}),
     "response_format", "response_format: "),
    (COMPLETE, json.dumps({"prompt": "a", "structured_outputs": {"regex": "(" * 500 + "a" + ")" * 500}}),
     "response_format", "response_format: "),
    ("/tokenize", "{}", "content", "content: missing, expected a text"),
    ("/detokenize", '{"tokens": [-1]}', "tokens", "tokens: expected ids from 0 to 49151"),
    ("/detokenize", '{"tokens": "a"}', "tokens", "tokens: expected a list of token ids"),
    ("/v1/embeddings", '{"input": "a", "encoding_format": "hex"}', "encoding_format",
     "encoding_format: got 'hex', expected float or base64"),
    ("/v1/responses", '{"input": 5}', "input", "input: "),
]
TOO_MANY = "a head of more than 16384 bytes; send shorter or fewer fields"
TOO_LONG = "a body of more than 8388608 bytes"
NO_REQUEST = "no request of HTTP/1.1: "
# What is wrong below JSON.
HTTP = [
    ("a body of 8 MiB and a byte", post("/tokenize", b"x" * (8 * MIB + 1)), 413, TOO_LONG),
    ("the same in chunks", raw("Transfer-Encoding: chunked", body=b"800001\r\n" + b"x" * (8 * MIB + 1) + b"\r\n0\r\n\r\n"),
     413, TOO_LONG),
    ("a length of 1 TB", raw("Content-Length: 1000000000000"), 413, TOO_LONG),
    ("a body that is packed", post("/tokenize", b"\x1f\x8b", fields={"Content-Encoding": "gzip"}), 415,
     "Content-Encoding 'gzip', expected none; send the body as it is"),
    ("20 MB of header fields", raw(*[f"X{i}: " + "y" * 1000 for i in range(20_000)]), 431, TOO_MANY),
    ("a key of 1 MB", request("GET", "/slots", key="k" * MIB), 431, TOO_MANY),
    ("a path of 1 MB", request("GET", "/" + "p" * MIB), 431, TOO_MANY),
    ("a length and chunks", raw("Content-Length: 2", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400, NO_REQUEST),
    ("two lengths", raw("Content-Length: 2", "Content-Length: 3", body=b"abc"), 400, NO_REQUEST),
    ("a length below 0", raw("Content-Length: -1"), 400, NO_REQUEST),
    ("a length with a letter", raw("Content-Length: 5x", body=b"hello"), 400, NO_REQUEST),
    ("a length beyond 64 bits", raw("Content-Length: 18446744073709551616"), 400, NO_REQUEST),
    ("a chunk's size that is none", raw("Transfer-Encoding: chunked", body=b"zz\r\n"), 400, NO_REQUEST),
    ("a chunk's size beyond 64 bits", raw("Transfer-Encoding: chunked", body=b"f" * 17 + b"\r\n"), 400, NO_REQUEST),
    ("a NUL in a field", raw("X: a\0b", "Content-Length: 0"), 400, NO_REQUEST),
    ("a space before a colon", raw("X : a", "Content-Length: 0"), 400, NO_REQUEST),
    ("a field without a colon", raw("X", "Content-Length: 0"), 400, NO_REQUEST),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, NO_REQUEST),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 512 + b"\r\n\r\n", 400, NO_REQUEST),
    ("no such path", request("GET", "/v1/nothing"), 404, "'GET' '/v1/nothing': no such path"),
    ("a path that climbs", request("GET", "/../../etc/passwd"), 404, "'GET' '/../../etc/passwd': no such path"),
    ("no such method", request("DELETE", CHAT), 405, "'DELETE' '/v1/chat/completions': no such method for this path"),
    ("a path for POST", request("GET", CHAT), 405, "'GET' '/v1/chat/completions': no such method for this path"),
    ("another model", chat('"model": "other"'), 404, "model 'other', expected model"),
    ("a page elsewhere", request("GET", "/slots", fields={"Origin": "https://evil.example"}), 403,
     "web pages of 'https://evil.example' may not ask"),
    ("the page null", request("GET", "/slots", fields={"Origin": "null"}), 403, "web pages of 'null' may not ask"),
]


class Failures:
    """Counts rows, and prints those whose answer is another."""

    def __init__(self):
        self.num_rows = self.num_failed = 0

    def expect(self, name, is_right, expected, got):
        self.num_rows += 1
        if is_right:
            return
        self.num_failed += 1
        print(f"{name}: expected {expected}, got {got}")

    def error(self, server, name, data, expected):
        """`expected`: the status, the beginning of the message, and the param."""
        status, fields, body = exchange(server, data)
        try:
            error = json.loads(body)["error"]
            got = status, error["message"], error["param"]
        except (ValueError, KeyError, TypeError):
            got = status, body[:200], None
        is_right = got[0] == expected[0] and str(got[1]).startswith(expected[1]) and got[2] == expected[2]
        self.expect(name, is_right, expected, got)
        return fields, body


def resident_bytes(server):
    return int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096


def check_bodies(server, failures):
    for members, param, message in FIELDS:
        failures.error(server, members[:60], chat(members), (400, f"{param}: {message}", param))
    for messages, param, message in MESSAGES:
        failures.error(server, messages[:60], post(CHAT, '{"messages": ' + messages + "}"),
                       (400, f"{param}: {message}", param))
    for path, body, param, message in BODIES:
        failures.error(server, f"{path} {body[:60]!r}", post(path, body), (400, message, param))


def check_http(server, failures):
    before = resident_bytes(server)
    for name, data, status, message in HTTP:
        failures.error(server, name, data, (status, message, "model" if status == 404 and "model" in message else None))
    for _ in range(20):
        exchange(server, HTTP[0][1])
    grown = resident_bytes(server) - before
    failures.expect("memory after bodies that are too long", grown < 64 * MIB, "less than 64 MiB more", grown)


def check_keys(server, failures):
    """Every path but /health needs the key, whole and nothing else."""
    routes = [("GET", path) for path in GET] + [("POST", path) for path in POST] + [("GET", "/none"), ("POST", "/none")]
    for method, path in routes:
        for key, message in [(None, "no API key"), ("", "wrong API key"), ("wrong", "wrong API key"), ("secre", "wrong API key"),
                             ("secrets", "wrong API key"), ("secret secret", "wrong API key")]:
            fields, _ = failures.error(server, f"{path} with key {key!r}", request(method, path, key=key), (401, message, None))
            failures.expect(f"{path} with key {key!r}", fields.get("www-authenticate") == "Bearer", "WWW-Authenticate", fields)
    status = [exchange(server, request("GET", path, key=None))[0] for path in ("/health", "/v1/health", "/")]
    failures.expect("paths without a key", status == [200] * 3, 200, status)


def check_pages_elsewhere(server, failures):
    """Only the pages that --cors-origins names may read answers."""
    for origin, allowed in [(ORIGIN, ORIGIN), ("https://evil.example", None), (ORIGIN + ".evil.example", None)]:
        for method, path in [("OPTIONS", CHAT), ("GET", "/v1/models")]:
            status, fields, _ = exchange(server, request(method, path, fields={"Origin": origin}))
            got = status, fields.get("access-control-allow-origin")
            expected = (403 if allowed is None else 204 if method == "OPTIONS" else 200, allowed)
            failures.expect(f"{method} of {origin}", got == expected, expected, got)
        told = exchange(server, post("/tokenize", b"x" * (8 * MIB + 1), fields={"Origin": origin, "X-Request-Id": "mine"}))[1]
        got = told.get("access-control-allow-origin"), told.get("x-request-id")
        failures.expect(f"a long body of {origin}", got == (allowed, "mine"), (allowed, "mine"), got)


def check_hosts(server, failures):
    """Without keys, a name that was made to point here is refused."""
    for host, status in [("evil.example", 403), ("evil.example:8080", 403), ("127.0.0.1.evil.example", 403),
                         ("localhost.evil.example", 403), ("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:8080", 200)]:
        got = exchange(server, request("GET", "/v1/models", key=None, host=host))[0]
        failures.expect(f"Host {host}", got == status, status, got)


def check_lengths(server, failures):
    """What doesn't fit into the context is refused with both numbers; an answer that fills it ends."""
    for prompt, tokens in [([1] * (CONTEXT + 88), CONTEXT + 88), (" word" * 700, 700)]:
        _, body = failures.error(server, f"a prompt of {tokens} tokens", post(COMPLETE, {"prompt": prompt}),
                                 (400, f"a prompt of {tokens} tokens, expected at most {CONTEXT} tokens", None))
        error = json.loads(body)["error"]
        got = error.get("n_prompt_tokens"), error.get("n_ctx"), error["type"], error["code"]
        expected = (tokens, CONTEXT, "exceed_context_size_error", "context_length_exceeded")
        failures.expect(f"the error of a prompt of {tokens} tokens", got == expected, expected, got)
    _, body = failures.error(server, "a prompt of 1 MB", post(COMPLETE, {"prompt": "x" * MIB}),
                             (400, f"a prompt of {MIB} bytes, expected at most {CONTEXT} tokens", None))
    failures.expect("its least tokens", json.loads(body)["error"]["n_prompt_tokens"] > CONTEXT, f"more than {CONTEXT}", body)
    answer = server.ask_json(COMPLETE, {"prompt": [1] * 500, "max_tokens": 100, "ignore_eos": True})
    got = answer["choices"][0]["finish_reason"], answer["usage"]["total_tokens"]
    failures.expect("a prompt and answer beyond the context", got in [("length", CONTEXT + 1), ("length", CONTEXT)], "length", got)


def streamed_pieces(server, body):
    text = server.ask(COMPLETE, {**body, "stream": True})[2]
    events = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
    return [event["choices"][0] for event in events]


def check_stops(server, failures):
    """A text ends right before a stop, wherever tokens and bytes are cut."""
    for said, stop, left in [("one, two, three", "o, th", "one, tw"), ("naïve café crème", "é c", "naïve caf"),
                             ("日本🙂語🙃", "🙃", "日本🙂語"), ("日本🙂語🙃", "never", "日本🙂語🙃"), ("aaab", "ab", "aa"),
                             ("aaab", "bc", "aaab")]:
        body = {"prompt": "Say:", "grammar": f'root ::= "{said}"', "stop": [stop], "temperature": 0, "max_tokens": 60}
        choice = server.ask_json(COMPLETE, body)["choices"][0]
        failures.expect(f"{said!r} until {stop!r}", (choice["text"], choice["finish_reason"]) == (left, "stop"), left, choice)
        pieces = [piece["text"] for piece in streamed_pieces(server, body)]
        failures.expect(f"{said!r} until {stop!r} in pieces", "".join(pieces) == left and "\ufffd" not in "".join(pieces),
                        left, pieces)


def check_offsets(server, failures):
    """Tokens of a completion say where in the text they begin, in a stream as well."""
    body = {"prompt": "Say:", "grammar": 'root ::= "naïve, café, crème"', "temperature": 0, "max_tokens": 60, "logprobs": 1}
    choice = server.ask_json(COMPLETE, body)["choices"][0]
    told = choice["logprobs"]
    whole_tokens = [(token, offset) for token, offset in zip(told["tokens"], told["text_offset"], strict=True) if "\ufffd" not in token]
    failures.expect("offsets", len(whole_tokens) > 3 and told["text_offset"][0] == 0 and all(
        choice["text"].startswith(token, offset) for token, offset in whole_tokens), "each token at its offset", told)
    offsets = [each for piece in streamed_pieces(server, body) for each in piece["logprobs"]["text_offset"]]
    failures.expect("offsets in pieces", offsets == told["text_offset"], told["text_offset"], offsets)


def check_fingerprint(server, failures):
    bodies = [{"prompt": "a", "max_tokens": 1}, {"prompt": "b", "max_tokens": 2, "seed": 3}]
    told = {server.ask_json(COMPLETE, body).get("system_fingerprint") for body in bodies}
    told.add(server.ask_json(CHAT, {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})["system_fingerprint"])
    failures.expect("the fingerprint", len(told) == 1 and str(*told).startswith("fp_") and len(str(*told)) == 15, "one", told)


def logged(server, request_id):
    """The objects of the log with this request's id; waits for one."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        lines = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
        if found := [line for line in lines if line.get("request_id") == request_id]:
            return found
        time.sleep(0.05)
    return []


def check_ids(server, failures):
    """A request's id comes back and stands in the log, whose lines are objects; what is no id is replaced."""
    for given, data, is_answered in [
            ("my-id.1_2:3/4+5=6@7", post(COMPLETE, {"prompt": "a b", "max_tokens": 3, "ignore_eos": True},
                                         fields={"X-Request-Id": "my-id.1_2:3/4+5=6@7"}), True),
            ("refused-7", post(COMPLETE, {}, fields={"X-Request-Id": "refused-7"}), False)]:
        status, fields, body = exchange(server, data)
        failures.expect(f"the id {given}", fields.get("x-request-id") == given, given, fields)
        lines = logged(server, given)
        line = lines[0] if len(lines) == 1 else {}
        if is_answered:
            expected = {"id": json.loads(body)["id"], "prompt_tokens": 2, "cached_tokens": 0, "completion_tokens": 3,
                        "finish_reason": "length"}
        else:
            expected = {"status": 400, "error": json.loads(body)["error"]["message"]}
        is_right = expected.items() <= line.items() and abs(line.get("time", 0) - time.time()) < 60
        is_timed = not is_answered or 0 < line.get("first_token_seconds", 0) <= line.get("seconds", 0)
        failures.expect(f"the line of {given}", is_right and is_timed, expected, lines)
    for given in ("", "a b", "x" * 129, '"', "é"):
        fields = exchange(server, request("GET", "/v1/models", fields={"X-Request-Id": given}))[1]
        got = fields.get("x-request-id", "")
        failures.expect(f"the id {given[:20]!r}", got.startswith("req-") and len(got) > 8, "a new one", got)


def check_answers(server, failures):
    """After all of it the server answers, and has refused nothing that it had taken."""
    answer = server.ask_json(CHAT, {"messages": [{"role": "user", "content": "What is the capital of France?"}],
                                    "temperature": 0, "max_tokens": 16})
    failures.expect("an answer", "Paris" in answer["choices"][0]["message"]["content"], "Paris", answer)
    # An answer is out a moment before its slot is free.
    deadline = time.monotonic() + 10
    while slots := [slot for slot in json.loads(server.ask("/slots")[2]) if slot["is_processing"]]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    failures.expect("slots", slots == [], "none in use", slots)


def main():
    weft, model = sys.argv[1:]
    failures = Failures()
    flags = ["--ctx-size", str(CONTEXT), "--log-json", "--cors-origins", ORIGIN]
    with Server(weft, model, *flags, key=KEY) as server:
        for check in (check_bodies, check_http, check_keys, check_pages_elsewhere, check_lengths, check_stops, check_offsets,
                      check_fingerprint, check_ids, check_answers):
            try:
                check(server, failures)
            except (OSError, RuntimeError, socket.timeout) as error:
                failures.expect(check.__name__, False, "no error", repr(error))
    with Server(weft, model, "--ctx-size", str(CONTEXT)) as server:
        check_hosts(server, failures)
    print(f"{failures.num_rows} rows, {failures.num_failed} failed")
    sys.exit(failures.num_failed > 0)


if __name__ == "__main__":
    main()
