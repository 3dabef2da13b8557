"""Asks a running `weft serve` what clients ask: client.py PORT KEY [CA]. Ends with 1 at the first surprise.

With CA, a file of certificates to trust, it asks by HTTPS.
"""

import base64
import concurrent.futures
import http.client
import json
import ssl
import struct
import sys
import time

PORT, KEY, CA = int(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def connect():
    if CA is None:
        return http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
    context = ssl.create_default_context(cafile=CA)
    return http.client.HTTPSConnection("127.0.0.1", PORT, timeout=120, context=context)


def ask(path, body=None, key=KEY):
    connection = connect()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    text = body if isinstance(body, (str, type(None))) else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, text, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def chat(**more):
    status, text = ask("/v1/chat/completions", {"messages": QUESTION, "temperature": 0, "max_tokens": 24, **more})
    assert status == 200, (status, text)
    return text


def content(**more):
    return json.loads(chat(**more))["choices"][0]["message"]["content"]


def streamed(**more):
    lines = [line for line in chat(stream=True, **more).split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]", lines[-1]
    return [json.loads(line[len("data: "):]) for line in lines[:-1]]


def tokens_of(*texts):
    return [token for text in texts for token in json.loads(ask("/tokenize", {"content": text})[1])["tokens"]]


def check_answers():
    whole = json.loads(chat())
    answer = whole["choices"][0]["message"]["content"]
    assert "Paris" in answer, answer
    assert whole["object"] == "chat.completion" and whole["usage"]["completion_tokens"] > 0, whole
    chunks = streamed(stream_options={"include_usage": True})
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant", chunks[0]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole["usage"], chunks[-1]
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in chunks[:-1]) == answer
    assert chunks[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    told = json.loads(chat(logprobs=True, top_logprobs=2))["choices"][0]
    first = told["logprobs"]["content"][0]
    assert told["message"]["content"] == answer and first["logprob"] == first["top_logprobs"][0]["logprob"], first
    assert len(json.loads(chat(n=2, temperature=1, seed=5))["choices"]) == 2
    space = json.loads(ask("/tokenize", {"content": " "})[1])["tokens"][0]
    assert content(max_tokens=3, logit_bias={str(space): 100}) == "   "
    assert "Paris" not in content(logit_bias={str(token): -100 for token in tokens_of(" Paris", "Paris")})
    body = {"prompt": "One, two,", "max_tokens": 4, "temperature": 0, "echo": True}
    echoed = json.loads(ask("/v1/completions", body)[1])["choices"][0]["text"]
    assert echoed.startswith("One, two,") and len(echoed) > len("One, two,"), echoed
    pieces = ask("/v1/completions", {**body, "stream": True})[1].split("\n\n")
    assert json.loads(pieces[0][len("data: "):])["choices"][0]["text"] == "One, two,", pieces[0]
    return answer


def check_forms():
    schema = {"type": "object", "required": ["name", "age"], "additionalProperties": False,
              "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer", "minimum": 0, "maximum": 99}}}
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    for seed in range(2):
        value = json.loads(content(max_tokens=200, temperature=1, seed=seed, response_format=form))
        assert list(value) == ["name", "age"] and len(value["name"]) <= 9 and value["age"] <= 99, value
    assert content(structured_outputs={"regex": "(Rome|Oslo)!"}) in ("Rome!", "Oslo!")
    assert content(grammar='root ::= "a" "b"{3}') == "abbb"


def check_tools():
    parameters = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    whole = json.loads(chat(tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=120))
    choice = whole["choices"][0]
    call = choice["message"]["tool_calls"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice
    assert call["function"]["name"] == "weather" and list(json.loads(call["function"]["arguments"])) == ["city"], call
    chunks = streamed(tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=120)
    calls = [each for chunk in chunks for each in chunk["choices"][0]["delta"].get("tool_calls", [])]
    # Arguments come as the model writes them: the first piece has the name.
    assert all(each["index"] == 0 and set(each) == {"index", "function"} for each in calls[1:]), calls
    told = {"name": calls[0]["function"]["name"], "arguments": "".join(each["function"]["arguments"] for each in calls)}
    assert calls[0]["index"] == 0 and len(calls) > 1 and told == call["function"], calls
    history = [*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]},
               {"role": "tool", "tool_call_id": call["id"], "content": "It rains."}]
    assert content(messages=history, tools=tools)


def check_responses():
    body = {"input": QUESTION[0]["content"], "temperature": 0, "max_output_tokens": 24}
    status, text = ask("/v1/responses", body)
    whole = json.loads(text)
    assert status == 200 and whole["object"] == "response", text
    said = whole["output"][0]["content"][0]["text"]
    assert said == content() and whole["output"][0]["role"] == "assistant", whole
    turns = [{"role": "user", "content": [{"type": "input_text", "text": QUESTION[0]["content"]}]}]
    events = [dict(line.split(": ", 1) for line in each.split("\n"))
              for each in ask("/v1/responses", {**body, "input": turns, "stream": True})[1].split("\n\n") if each]
    told = [json.loads(each["data"]) for each in events]
    assert [each["type"] for each in told] == [each["event"] for each in events]
    assert [each["sequence_number"] for each in told] == list(range(len(told)))
    assert "".join(each["delta"] for each in told if each["type"] == "response.output_text.delta") == said
    kinds = [each["type"].removeprefix("response.") for each in told]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"], kinds
    ends = ["output_text.done", "content_part.done", "output_item.done", whole["status"]]
    assert kinds[-4:] == ends and told[-1]["response"]["usage"] == whole["usage"], told[-1]
    cut = json.loads(ask("/v1/responses", {**body, "max_output_tokens": 2})[1])
    assert cut["status"] == "incomplete" and cut["incomplete_details"]["reason"] == "max_output_tokens", cut
    form = {"type": "json_schema", "name": "city", "schema": {
        "type": "object", "properties": {"z": {"type": "boolean"}, "a": {"type": "boolean"}}, "required": ["z", "a"]}}
    formed = json.loads(ask("/v1/responses", {**body, "max_output_tokens": 200, "text": {"format": form}})[1])
    assert list(json.loads(formed["output"][0]["content"][0]["text"])) == ["z", "a"], formed
    tool = {"type": "function", "name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}}
    more = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 120}
    call = json.loads(ask("/v1/responses", {**body, **more})[1])["output"][0]
    assert call["type"] == "function_call" and list(json.loads(call["arguments"])) == ["city"], call
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "It rains."}
    status, text = ask("/v1/responses", {**body, **more, "tool_choice": "auto", "input": [*turns, call, answer]})
    assert status == 200, text


def check_embeddings():
    def embed(inputs, **more):
        status, text = ask("/v1/embeddings", {"input": inputs, "model": "model", **more})
        assert status == 200, (status, text)
        return json.loads(text)

    texts = ["Paris is in France.", "Rome is in Italy.", "x = y + 1"]
    whole = embed(texts)
    vectors = [each["embedding"] for each in whole["data"]]
    assert [each["index"] for each in whole["data"]] == [0, 1, 2] and whole["model"] == "model", whole
    assert whole["usage"]["prompt_tokens"] == len(tokens_of(*texts)), whole["usage"]
    assert len(vectors[0]) == 576 and abs(sum(x * x for x in vectors[0]) - 1) < 1e-5, vectors[0]
    likeness = [sum(x * y for x, y in zip(vectors[0], other)) for other in vectors[1:]]
    assert likeness[0] > likeness[1], likeness
    packed = base64.b64decode(embed([tokens_of(texts[1])], encoding_format="base64")["data"][0]["embedding"])
    assert struct.unpack(f"<{len(packed) // 4}f", packed) == struct.unpack("<576f", struct.pack("<576f", *vectors[1]))


def check_pages():
    """Prompts that begin alike read that once, and answers stay the same."""
    def numbers(name):
        return [float(line.split()[1]) for line in ask("/metrics")[1].splitlines() if line.startswith(f"weft:{name} ")][0]

    body = {"prompt": "All human beings are born free and equal. " * 40, "max_tokens": 6, "temperature": 0}
    saved = numbers("prefix_cache_hits_total")
    answers = [json.loads(ask("/v1/completions", body)[1]) for _ in range(2)]
    assert answers[0]["choices"] == answers[1]["choices"], answers
    assert answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 256, answers[1]["usage"]
    several = json.loads(ask("/v1/completions", {**body, "n": 3})[1])["usage"]
    assert several["prompt_tokens_details"]["cached_tokens"] == 256, several
    assert several["prompt_tokens"] == answers[1]["usage"]["prompt_tokens"], several
    assert numbers("prefix_cache_hits_total") >= saved + 256
    assert 0 < numbers("prefix_cache_bytes") <= numbers("prefix_cache_limit_bytes")


def check_head():
    """What load balancers ask with: the same without a body."""
    connection = connect()
    for _ in range(2):
        connection.request("HEAD", "/health")
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read() == b"" and int(answer.headers["Content-Length"]) > 0


def check_slots():
    connection = connect()
    body = json.dumps({"prompt": [1, 2, 3], "max_tokens": 60, "ignore_eos": True, "stream": True})
    connection.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    # Slots are noted at the end of a step, a token is sent within it: the second one tells that the first is noted.
    for _ in range(2):
        while not answer.readline().startswith(b"data:"):
            pass
    slots = json.loads(ask("/slots")[1])
    used = [slot for slot in slots if slot["is_processing"]]
    assert len(slots) == 8 and len(used) == 1 and used[0]["n_prompt_tokens"] == 3 and used[0]["n_decoded"] > 0, slots
    answer.read()


def check_neighbours(answer):
    drawn = content(temperature=1, seed=3)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(content, **({} if i % 2 else {"temperature": 1, "seed": 3})) for i in range(16)]
        assert all(job.result() == (answer if i % 2 else drawn) for i, job in enumerate(jobs))


def check_refusals():
    for path, body, status, param in [
            ("/v1/chat/completions", {"messages": QUESTION, "n": "two"}, 400, "n"),
            ("/v1/chat/completions", "{", 400, None),
            ("/v1/chat/completions", {"messages": QUESTION, "model": "other"}, 404, "model"),
            ("/v1/completions", {"prompt": [1] * 5000}, 400, None),
            ("/v1/responses", {"input": "a", "previous_response_id": "resp_1"}, 400, "previous_response_id"),
            ("/v1/embeddings", {"input": ["a", [49152]]}, 400, "input"),
            ("/v1/embeddings", {"input": "a", "dimensions": 3}, 400, "dimensions"),
            ("/v1/completions", {"prompt": "a", "logit_bias": {"70000": 1}}, 400, "logit_bias"),
            ("/v1/chat/completions", {"messages": QUESTION, "grammar": "root ::= none"}, 400, "response_format"),
            ("/v1/chat/completions", {"messages": QUESTION, "tool_choice": "required"}, 400, "tool_choice"),
            ("/v1/nothing", {}, 404, None),
            ("/health", {}, 405, None)]:
        got, text = ask(path, body)
        assert got == status and json.loads(text)["error"]["param"] == param, (path, got, text)
    for key in ("", "wrong"):
        assert ask("/v1/models", key=key)[0] == 401
    assert ask("/health", key="")[0] == 200


def check_leaving():
    connection = connect()
    body = json.dumps({"prompt": "Once", "max_tokens": 3000, "ignore_eos": True, "stream": True})
    connection.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {KEY}"})
    connection.getresponse().read(10)
    connection.close()
    for _ in range(100):
        if "weft:requests_cancelled_total 1\n" in ask("/metrics")[1]:
            return
        time.sleep(0.05)
    raise AssertionError(ask("/metrics")[1])


tokens = json.loads(ask("/tokenize", {"content": "Hello there"})[1])["tokens"]
assert json.loads(ask("/detokenize", {"tokens": tokens})[1])["content"] == "Hello there"
assert json.loads(ask("/v1/models")[1])["data"][0]["id"] == "model"
check_neighbours(check_answers())
check_forms()
check_tools()
check_responses()
check_embeddings()
check_pages()
check_head()
check_slots()
check_refusals()
check_leaving()
print("answered")
