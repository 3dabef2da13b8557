#!/usr/bin/env python3
"""Asks `weft batch` for answers to random JSON schemas and checks each with PyPI's jsonschema.

Schemas are made by seed: nested objects, arrays with bounds, tuples, enums, constants, numbers with ranges, strings with
lengths and patterns, unions, and trees by $ref. Answers are drawn at --temp with a seed each. An answer that reaches the
most tokens may end in the middle and is counted apart. Ends with 1 if an answer doesn't parse or satisfy its schema, or
if a schema is refused.

Usage: check_schemas.py [--model MODEL] [--schemas 200] [--seed 1] [--tokens 2000] [--out FOLDER] build/weft [-- FLAG…]
Needs jsonschema (pip install jsonschema).
"""

import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import jsonschema

NAMES = ["name", "age", "id", "x", "tags", "é", "a b", "quote\"d", "size", "on"]
PATTERNS = ["^[a-z]{2,6}$", "^\\d{3}-\\d{2}$", "^(red|green|blue)$", "^[A-Z][^0-9]{0,4}$", "^a+b?(c|de){1,3}$", "^\\w+\\s\\w+$"]
VALUES = ["red", "blue", "", "with \"quotes\"", "line\nbreak", "日本", 0, -7, 2.5, 1e-3, True, False, None, [1, "a"], {"k": [None]}]


class Maker:
    """One schema of each kind, by a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.defs = {}

    def whole(self):
        schema = self.object(3)
        if self.random.random() < 0.3:
            schema = self.tree()
        if self.defs:
            schema = {**schema, "$defs": self.defs}
        return schema

    def any(self, depth):
        simple = [self.integer, self.number, self.text, self.pattern, self.enum, self.const, self.kinds, self.multiple]
        nested = [self.object, self.array, self.tuple, self.any_of, self.one_of, self.map, self.named, self.reference]
        make = self.random.choice(simple + nested if depth > 0 else simple)
        return make(depth - 1) if make in nested else make()

    def integer(self):
        low = self.random.choice([-10**12, -120, -3, 0, 1, 17, 2**40])
        high = low + self.random.choice([0, 1, 9, 99, 12345, 10**11])
        schema = {"type": "integer"}
        if self.random.random() < 0.8:
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low - 1
        if self.random.random() < 0.8:
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = high + 1
        return schema

    def number(self):
        low = self.random.choice([-1e6, -2.5, -0.1, 0, 0.001, 1e-7, 3.14159, 99.99, 5e8])
        high = low + self.random.choice([0.01, 0.5, 1, 7.25, 1e3])
        high = high if high > low else low + 1  # where a double has no room between them
        schema = {"type": "number"}
        if self.random.random() < 0.8:
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.random.random() < 0.8:
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = high
        return schema

    def text(self):
        least = self.random.randrange(4)
        return {"type": "string", "minLength": least, "maxLength": least + self.random.randrange(12)}

    def pattern(self):
        return {"type": "string", "pattern": self.random.choice(PATTERNS)}

    def enum(self):
        return {"enum": self.random.sample(VALUES, self.random.randrange(1, 6))}

    def const(self):
        return {"const": self.random.choice(VALUES)}

    def kinds(self):
        return {"type": self.random.sample(["null", "boolean", "integer"], self.random.randrange(1, 4)), "maximum": 1000}

    def multiple(self):
        return {"type": "integer", "multipleOf": self.random.choice([2, 7, 25]), "minimum": -100, "maximum": 400}

    def object(self, depth):
        names = self.random.sample(NAMES, self.random.randrange(0, 5))
        schema = {"type": "object", "properties": {name: self.any(depth) for name in names},
                  "required": [name for name in names if self.random.random() < 0.6]}
        if self.random.random() < 0.5:
            schema["additionalProperties"] = False
        if names and self.random.random() < 0.2:
            schema["minProperties"] = max(1, len(schema["required"]))
        if self.random.random() < 0.2:
            schema["maxProperties"] = len(schema["required"]) + 1
        return schema

    def array(self, depth):
        least = self.random.randrange(3)
        return {"type": "array", "items": self.any(depth), "minItems": least, "maxItems": least + self.random.randrange(4)}

    def tuple(self, depth):
        first = [self.any(depth) for _ in range(self.random.randrange(1, 4))]
        return {"type": "array", "prefixItems": first, "items": False, "minItems": self.random.randrange(len(first) + 1)}

    def map(self, depth):
        return {"type": "object", "additionalProperties": self.any(depth), "maxProperties": 3}

    def named(self, depth):
        if self.random.random() < 0.5:
            return {"type": "object", "patternProperties": {"^x-[a-z]{1,5}$": self.any(depth)}, "maxProperties": 2}
        return {"type": "object", "propertyNames": {"type": "string", "pattern": "^[a-z]{1,5}$"},
                "additionalProperties": self.any(depth), "maxProperties": 2}

    def any_of(self, depth):
        return {"anyOf": [self.any(depth) for _ in range(self.random.randrange(1, 4))]}

    def one_of(self, depth):
        if self.random.random() < 0.25:
            for kind in ["cat", "dog"]:
                self.defs.setdefault(kind, self.tagged(kind, 0))
            return {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}, {"type": "string", "maxLength": 9}]}
        if self.random.random() < 0.5:
            return {"oneOf": [self.tagged(kind, depth) for kind in ["circle", "square", "line"]]}
        others = [{"type": "null"}, {"type": "boolean"}, {"type": ["integer"]}, {"enum": ["red", "blue"]}, {"const": [1, "a"]}]
        return {"oneOf": self.random.sample(others, self.random.randrange(1, 5))}

    def tagged(self, kind, depth):
        return {"type": "object", "properties": {"kind": {"const": kind}, "value": self.any(depth)},
                "required": ["kind", "value"], "additionalProperties": False}

    def reference(self, depth):
        if "leaf" not in self.defs:
            self.defs["leaf"] = self.text()
            self.defs["leaf"] = self.any(depth)
        return {"$ref": "#/$defs/leaf"}

    def tree(self):
        self.defs["node"] = {"type": "object", "required": ["value", "next"], "properties": {
            "value": self.any(1), "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}}}
        return {"$ref": "#/$defs/node"}


def refers_to_itself(schema):
    return any('"#/$defs/leaf"' in json.dumps(part) for name, part in schema.get("$defs", {}).items() if name == "leaf")


def schemas_of(options):
    made = []
    seed = options.seed * 1000003
    while len(made) < options.schemas:
        seed += 1
        schema = Maker(seed).whole()
        if not refers_to_itself(schema):  # a leaf that needs itself has no value
            jsonschema.Draft202012Validator.check_schema(schema)
            made.append(schema)
    return made


def ask(options, schemas, folder):
    requests = "".join(json.dumps({
        "prompt": "An example in JSON:\n", "temperature": options.temp, "seed": number, "max_tokens": options.tokens,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}) + "\n"
        for number, schema in enumerate(schemas))
    (folder / "requests.jsonl").write_text(requests)
    answers = folder / "answers.jsonl"
    command = [options.weft, "batch", *([options.model] if options.model else []), "-i", folder / "requests.jsonl",
               "-o", answers, "--force", *options.flags]
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"check_schemas: {done.stderr}")
    return [json.loads(line)["response"] for line in answers.read_text().splitlines()]


def judge(schema, response):
    """What an answer is: a kind, and words for what is wrong."""
    if response["status_code"] != 200:
        return "refused", response["body"]["error"]["message"]
    choice = response["body"]["choices"][0]
    if choice["finish_reason"] != "stop":
        return "cut", ""
    try:
        value = json.loads(choice["text"])
    except ValueError as error:
        return "no JSON", f"{error}: {choice['text']!r}"
    for error in jsonschema.Draft202012Validator(schema).iter_errors(value):
        return "invalid", f"{error.message}: {choice['text']!r}"
    return "right", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("weft")
    parser.add_argument("--model")
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--temp", type=float, default=1)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("flags", nargs="*", help="flags of weft batch, behind --")
    options = parser.parse_args()
    schemas = schemas_of(options)
    with tempfile.TemporaryDirectory() as folder:
        responses = ask(options, schemas, options.out or pathlib.Path(folder))
    kinds = collections.Counter()
    for number, (schema, response) in enumerate(zip(schemas, responses, strict=True)):
        kind, words = judge(schema, response)
        kinds[kind] += 1
        if kind not in ("right", "cut"):
            print(f"schema {number}: {kind}: {words}\n  {json.dumps(schema)}")
    print(f"{len(schemas)} schemas: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    sys.exit(set(kinds) - {"right", "cut"} != set())


if __name__ == "__main__":
    main()
