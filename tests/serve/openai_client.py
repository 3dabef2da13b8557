"""Asks a `weft serve` by PyPI's openai, as programs do: openai_client.py WEFT MODEL. Ends with 1 if an answer is wrong.

Where the package is missing it ends with 77, which ctest counts as skipped, or with 1 where WEFT_REQUIRE is set, as it
is where nothing may be skipped. `./start --tests setup` installs it.
"""

import json
import math
import pathlib
import sys
import traceback

from server import Server, end_without

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / ".deps/python"))
try:
    import openai
    import pydantic
except ImportError as error:
    end_without(error)

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
MODEL = "model"
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"],
           "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": WEATHER}} for name in ("weather", "time")]


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    is_adult: bool


def expect(is_right, what, got):
    if not is_right:
        raise AssertionError(f"expected {what}, got {got!r}")


def chat(client, **more):
    wanted = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_completion_tokens": 16, **more}
    return client.chat.completions.create(**wanted)


def check_chat(client):
    answer = chat(client)
    choice = answer.choices[0]
    expect("Paris" in choice.message.content and choice.message.role == "assistant", "Paris", answer)
    expect(choice.finish_reason == "stop" and answer.object == "chat.completion", "a whole answer", answer)
    usage = answer.usage
    expect(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0, "a sum of tokens", usage)
    expect(chat(client, max_completion_tokens=2).choices[0].finish_reason == "length", "a cut answer", answer)
    several = chat(client, n=3, temperature=1, seed=7)
    expect([each.index for each in several.choices] == [0, 1, 2], "three choices", several)
    expect(chat(client, n=3, temperature=1, seed=7).choices == several.choices, "the same by the same seed", several)


def check_chat_streams(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    expect(chunks[-1].choices == [] and chunks[-1].usage == whole.usage, "the usage at the end", chunks[-1])
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    expect(said == whole.choices[0].message.content, whole.choices[0].message.content, said)
    expect(chunks[-2].choices[0].finish_reason == "stop", "a reason at the end", chunks[-2])
    expect(len({chunk.id for chunk in chunks}) == 1, "one id", chunks)
    with client.chat.completions.stream(model=MODEL, messages=QUESTION, temperature=0) as stream:
        kinds = {event.type for event in stream}
        told = stream.get_final_completion().choices[0].message.content
    expect({"chunk", "content.delta", "content.done"} <= kinds and told == said, "the library's own events", (kinds, told))


def check_logprobs(client):
    choice = chat(client, logprobs=True, top_logprobs=3).choices[0]
    tokens = choice.logprobs.content
    expect("".join(token.token for token in tokens) == choice.message.content, "the answer in tokens", tokens)
    for token in tokens:
        likely = [each.logprob for each in token.top_logprobs]
        expect(len(likely) == 3 and likely == sorted(likely, reverse=True) and token.logprob == likely[0] <= 0,
               "the token drawn at temperature 0 first of three", token)
        expect(bytes(token.bytes).decode() == token.token, "its bytes", token)


def check_tools(client):
    named = {"type": "function", "function": {"name": "time"}}
    for choice, names in [("required", {"weather", "time"}), (named, {"time"})]:
        more = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False, "max_completion_tokens": 120}
        answer = chat(client, **more).choices[0]
        call = answer.message.tool_calls[0]
        expect(call.function.name in names and answer.finish_reason == "tool_calls", f"a call of {names}", answer)
        expect(list(json.loads(call.function.arguments)) == ["city"], "arguments of the schema", call)
        deltas = [each for chunk in chat(client, stream=True, **more) for each in chunk.choices[0].delta.tool_calls or []]
        streamed = (deltas[0].function.name, "".join(each.function.arguments or "" for each in deltas))
        expect(streamed == (call.function.name, call.function.arguments), "the same call in a stream", deltas)
    history = [*QUESTION, answer.message.model_dump(exclude_none=True),
               {"role": "tool", "tool_call_id": call.id, "content": "It rains."}]
    expect(chat(client, messages=history, tools=TOOLS).choices[0].message.content, "an answer after a tool's", history)


def check_forms(client):
    form = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": WEATHER}}
    value = json.loads(chat(client, response_format=form, max_completion_tokens=100).choices[0].message.content)
    expect(list(value) == ["city"], "an object of the schema", value)
    more = {"model": MODEL, "temperature": 0}
    parsed = client.chat.completions.parse(messages=QUESTION, response_format=Person, max_completion_tokens=100, **more)
    expect(isinstance(parsed.choices[0].message.parsed, Person), "a Person", parsed)
    answer = client.responses.parse(input="Name somebody.", text_format=Person, max_output_tokens=100, **more)
    expect(isinstance(answer.output_parsed, Person), "a Person", answer)


def check_completions(client):
    more = {"model": MODEL, "prompt": "One, two, three,", "temperature": 0, "max_tokens": 6}
    answer = client.completions.create(**more, logprobs=2)
    choice = answer.choices[0]
    expect(choice.text.startswith(" four"), " four", answer)
    expect("".join(choice.logprobs.tokens) == choice.text, "the text in tokens", choice.logprobs)
    streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(**more, stream=True))
    expect(streamed == choice.text, choice.text, streamed)
    several = client.completions.create(**{**more, "prompt": ["One,", "Two,"]}, n=2)
    expect([each.index for each in several.choices] == [0, 1, 2, 3], "two choices of each prompt", several)


def check_embeddings(client):
    texts = ["Paris is in France.", "Rome is in Italy."]
    # The library asks for base64 by itself and reads it.
    packed, plain = (client.embeddings.create(model=MODEL, input=texts, **more)
                     for more in ({}, {"encoding_format": "float"}))
    for one, other in zip(packed.data, plain.data, strict=True):
        expect(math.isclose(math.hypot(*one.embedding), 1, rel_tol=1e-5), "a vector of length 1", one)
        expect(all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in zip(one.embedding, other.embedding, strict=True)),
               "the same in both forms", one)
    expect(packed.usage.total_tokens == packed.usage.prompt_tokens > 0, "tokens of the texts", packed.usage)


def check_responses(client):
    more = {"model": MODEL, "input": QUESTION[0]["content"], "temperature": 0, "max_output_tokens": 16}
    answer = client.responses.create(**more)
    expect("Paris" in answer.output_text and answer.status == "completed", "Paris", answer)
    events = list(client.responses.create(**more, stream=True))
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    expect(deltas == answer.output_text and events[-1].type == "response.completed", answer.output_text, deltas)
    expect(events[-1].response.usage == answer.usage, answer.usage, events[-1].response.usage)
    with client.responses.stream(**more) as stream:
        told = [event.type for event in stream] and stream.get_final_response()
    expect(told.output_text == answer.output_text, answer.output_text, told)
    tool = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}
    called = client.responses.create(**{**more, "max_output_tokens": 120}, tools=[tool], tool_choice="required").output[0]
    expect(called.type == "function_call" and list(json.loads(called.arguments)) == ["city"], "a call", called)


def check_models(client):
    expect([model.id for model in client.models.list()] == [MODEL], "one model", client.models.list())


def refused(kind, code, ask):
    try:
        answer = ask()
    except kind as error:
        expect(error.status_code == code and error.body["message"], f"{code} with a message", error)
        return error
    raise AssertionError(f"expected {kind.__name__}, got {answer!r}")


def check_errors(client):
    refused(openai.NotFoundError, 404, lambda: chat(client, model="other"))
    error = refused(openai.BadRequestError, 400, lambda: chat(client, temperature=9))
    expect(error.param == "temperature", "the field's name", error.param)
    long = [{"role": "user", "content": "word " * 5000}]
    refused(openai.BadRequestError, 400, lambda: chat(client, messages=long))
    refused(openai.BadRequestError, 400, lambda: chat(client, stream=True, n=100))
    error = refused(openai.AuthenticationError, 401, lambda: chat(client.with_options(api_key="wrong")))
    expect(error.code == "invalid_api_key", "invalid_api_key", error.code)


def main():
    weft, model = sys.argv[1:]
    failures = 0
    with Server(weft, model, key="secret") as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="secret", max_retries=0)
        for name, check in [each for each in globals().items() if each[0].startswith("check_")]:
            try:
                check(client)
            except Exception:  # The other checks have something to say, too.
                print(f"{name}: {traceback.format_exc(limit=-2)}")
                failures += 1
    print(f"openai {openai.__version__}: {failures} checks failed")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
