#!/usr/bin/env python3
"""Teaches the installed SmolLM2, whose 4-bit weights stay as they are, to answer in a fixed format,
and counts exact answers before and after: examples/train/lora.py OUT [--steps N] [WEFT'S FLAGS]

The user writes a sentence about somebody; the answer is one line of JSON. Names, towns and wordings
of the held-out sentences are not among those to learn from.
"""

import json
import random

import common

TASK = "Give the person's name, age and town as JSON. "
FIRST = ["Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Karin",
         "Leo", "Maria", "Nils", "Olga", "Peter", "Rosa", "Simon", "Tanja", "Victor"]
LAST = ["Adams", "Baker", "Costa", "Dubois", "Fischer", "Garcia", "Hansen", "Jensen", "Keller", "Lopez",
        "Meyer", "Novak", "Olsen", "Peters", "Rossi", "Silva", "Turner", "Vogel", "Weber", "Young"]
TOWNS = ["Athens", "Berlin", "Cairo", "Dublin", "Geneva", "Hamburg", "Lima", "London", "Madrid", "Milan",
         "Moscow", "Oslo", "Paris", "Prague", "Quito", "Rome", "Seoul", "Tokyo", "Vienna", "Zurich"]
WORDINGS = ["{name} is {age} years old and lives in {town}.",
            "My neighbour in {town} is called {name}. She turned {age} last week.",
            "From {town} comes {name}, who is {age}.",
            "Yesterday I met {name} from {town}, aged {age}.",
            "In {town} there lives a teacher of {age} years. His name is {name}.",
            "{age} years ago {name} was born in {town}.",
            "The winner is {name} of {town}; at {age}, a record.",
            "Ask {name}. You find her in {town}, and she is {age} now.",
            "{town}: {name}, {age}, opens a bakery.",
            "At the age of {age}, {name} moved to {town}.",
            "{name} ({age}) has a small shop in {town}.",
            "We met {name} in {town} when he was {age}."]
# Held-out sentences have the last quarter of each list.
NEW = {"first": FIRST[15:], "last": LAST[15:], "town": TOWNS[15:], "wording": WORDINGS[9:]}
KNOWN = {"first": FIRST[:15], "last": LAST[:15], "town": TOWNS[:15], "wording": WORDINGS[:9]}


def make(generator, lists):
    chosen = {key: generator.choice(values) for key, values in lists.items()}
    person = {"name": f"{chosen['first']} {chosen['last']}", "age": generator.randint(18, 90),
              "town": chosen["town"]}
    return TASK + chosen["wording"].format(**person), json.dumps(person)


def chat(question, answer):
    return {"messages": [{"role": "user", "content": question},
                         {"role": "assistant", "content": answer}]}


def count_exact(flags, model, held_out):
    def ask(pair):
        return common.weft(flags, "chat", *model, "-p", pair[0], "-n", 60, "-t", 1).strip()

    answers = common.ask_all(held_out, ask)
    print(f"e.g. {held_out[0][0]!r}\n  -> {answers[0]!r}")
    return sum(given == right for given, (_, right) in zip(answers, held_out))


def main():
    flags, more = common.parse_flags(__doc__.splitlines()[0], steps=60, target=60).parse_known_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    generator = random.Random(1)
    common.write_lines(flags.out / "train.jsonl", [chat(*make(generator, KNOWN)) for _ in range(1000)])
    held_out = [make(generator, NEW) for _ in range(flags.held_out or 50)]
    before = count_exact(flags, [], held_out)
    common.train(flags, "lora", "lora.toml", more)
    common.weft(flags, "fuse", flags.out / "run", flags.out / "model")
    after = count_exact(flags, ["-m", flags.out / "model"], held_out)
    share = 100 * after / len(held_out)
    common.finish(f"exact answers to {len(held_out)} held-out sentences: {before} before, {after} "
                  f"after ({share:.0f} %), target {flags.target} %",
                  before < len(held_out) / 10 and share >= flags.target)


main()
