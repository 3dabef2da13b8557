#!/usr/bin/env python3
"""Loads a server of OpenAI's API and says how fast it answers: bench/serve/load.py --url http://127.0.0.1:8080/v1

Closed loop: --clients N, each asks again as soon as it is answered. Open loop: --rate R requests a second begin
whatever else is being answered, at times drawn as a Poisson process. Every prompt is different unless --same says how
many words they share. Prints, over all answers, time to first token and between tokens (p50, p90, p99) and tokens a
second; --json prints one object. Needs Python alone.
"""

import argparse
import asyncio
import json
import random
import ssl
import sys
import time
import urllib.parse

WORDS = "the of and to in is you that it he was for on are as with his they at be this have from or one had by".split()


class Failed(Exception):
    pass


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--key", default="", help="an API key")
    parser.add_argument("--ssl-ca-file", help="certificates to trust of an https server (default: the system's)")
    parser.add_argument("--clients", type=int, default=0, help="closed loop of so many clients")
    parser.add_argument("--rate", type=float, default=0, help="open loop at so many requests a second")
    parser.add_argument("--requests", type=int, default=32, help="requests in all (default: 32)")
    parser.add_argument("--prompt", type=int, default=64, help="words of a prompt (default: 64)")
    parser.add_argument("--same", type=int, default=0, help="of them the same in all prompts, from the first on")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each answer (default: 64)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if (options.clients > 0) == (options.rate > 0):
        parser.error("give --clients or --rate")
    return options


def tls_of(options):
    """How an https server proves who it is; None for http."""
    if urllib.parse.urlsplit(options.url).scheme != "https":
        return None
    return ssl.create_default_context(cafile=options.ssl_ca_file)


def prompt_of(options, number):
    shared = random.Random(options.seed).choices(WORDS, k=options.same)
    own = random.Random(f"{options.seed}-{number}").choices(WORDS, k=max(0, options.prompt - options.same))
    return " ".join(shared + own)


async def ask(options, number):
    """The times of one answer: when it was asked, then when each piece with a token came."""
    place = urllib.parse.urlsplit(options.url)
    body = json.dumps({"prompt": prompt_of(options, number), "max_tokens": options.tokens, "temperature": 0,
                       "ignore_eos": True, "stream": True, "logprobs": 0})
    key = f"Authorization: Bearer {options.key}\r\n" if options.key else ""
    times = [time.monotonic()]
    reader, writer = await asyncio.open_connection(
        place.hostname, place.port or (443 if options.tls else 80), ssl=options.tls)
    try:
        writer.write((f"POST {place.path}/completions HTTP/1.0\r\nHost: {place.netloc}\r\n{key}"
                      f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
        status = (await reader.readline()).decode().split(" ", 2)
        if status[1] != "200":
            raise Failed(" ".join(status).strip() + " " + (await reader.read()).decode()[-200:])
        async for line in reader:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise Failed(event["error"]["message"])
            # One piece for each token, as probabilities come with each.
            if event["choices"] and event["choices"][0]["logprobs"]["tokens"]:
                times.append(time.monotonic())
    finally:
        writer.close()
    if len(times) < 2:
        raise Failed("an answer without tokens")
    return times


async def closed_loop(options):
    numbers = iter(range(options.requests))
    answers = []

    async def client():
        for number in numbers:
            answers.append(await ask(options, number))

    await asyncio.gather(*(client() for _ in range(options.clients)))
    return answers


async def open_loop(options):
    waits = random.Random(options.seed)
    jobs = []
    for number in range(options.requests):
        jobs.append(asyncio.create_task(ask(options, number)))
        await asyncio.sleep(waits.expovariate(options.rate))
    return await asyncio.gather(*jobs)


def percentiles(seconds):
    ordered = sorted(seconds) or [0.0]
    return {f"p{p}": 1000 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (50, 90, 99)}


def summary(answers, seconds):
    tokens = sum(len(times) - 1 for times in answers)
    return {"requests": len(answers), "tokens": tokens, "seconds": seconds, "tokens_per_s": tokens / seconds,
            "first_token_ms": percentiles([times[1] - times[0] for times in answers]),
            "between_tokens_ms": percentiles([b - a for times in answers for a, b in zip(times[1:], times[2:])])}


def main():
    options = arguments()
    start = time.monotonic()
    try:
        options.tls = tls_of(options)
        answers = asyncio.run(closed_loop(options) if options.clients else open_loop(options))
    except (Failed, OSError) as error:
        sys.exit(f"load: {options.url}: {error}")
    result = summary(answers, time.monotonic() - start)
    if options.json:
        print(json.dumps(result))
        return
    print(f"{result['requests']} answers, {result['tokens']} tokens in {result['seconds']:.1f} s: "
          f"{result['tokens_per_s']:.1f} tokens/s")
    for name in ("first_token_ms", "between_tokens_ms"):
        print(f"{name}: " + ", ".join(f"{p} {value:.1f}" for p, value in result[name].items()))


if __name__ == "__main__":
    main()
