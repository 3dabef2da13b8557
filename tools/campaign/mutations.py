"""Damage that knows the form of what it damages: JSON, TOML, safetensors, GGUF, templates, bytes.

Each function takes a random generator and the content, and returns the damaged content and a few
words on how it was damaged.
"""

import json
import re
import struct

TEXTS = ["", "\x1b[31mred", "two\nlines", "nul\0in", "\u202eright", "x" * 5000, "../../etc/passwd", "/dev/zero",
         "%s%n%x", "{{ 1 }}", "é\U0001f600", "-", "\\", "a/b", "model.embed_tokens.weight"]
NUMBERS = [0, 1, -1, 2, 3, 7, 255, 256, 65536, 2**31 - 1, 2**31, -2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63,
           2**64 - 1, 2**64, 1e-320, 1e308, -0.5, 0.1, 1e39]
RAW = ["NaN", "Infinity", "-Infinity", "1e999", "01", "'x'", "nul", "\"\\ud800\"", "[1,]", "{", "]", "\x00"]
WORDS = [b"\0" * 8, b"\xff" * 8, b"\xff" * 4, struct.pack("<Q", 2**63), struct.pack("<I", 2**31), b"\n", b"\x1b[2J",
         b"\xc3", b"{", b"\"", b"%s"]


def odd_value(rng, old):
    kind = rng.randrange(7)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return rng.choice(TEXTS)
    if kind == 2:
        return rng.choice([None, True, False, [], {}])
    if kind == 3:
        return [old] * rng.choice([1, 2, 1000])
    if kind == 4 and isinstance(old, (int, float)) and not isinstance(old, bool):
        return rng.choice([old + 1, old - 1, old * 2, -old, old * 1000003, old / 3, str(old)])
    if kind == 5 and isinstance(old, str):
        return rng.choice([old + "\0", old[:-1], old * 2, old.upper(), old[::-1], old + "\n"])
    nested = old
    for _ in range(rng.choice([1, 3, 90, 400])):
        nested = [nested]
    return nested


def places(root):
    """The places of a JSON value, at most some 20,000: (container, key)."""
    found, open_ones = [], [root]
    while open_ones and len(found) < 20000:
        value = open_ones.pop()
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, child in children:
            found.append((value, key))
            open_ones.append(child)
    return found


def damage_value(rng, root):
    """Damages a JSON value in place at one place; says where and how."""
    found = places(root)
    if not found:
        return "nothing"
    # Tables with many alike entries must not take all the damage.
    keys = [place for place in found if isinstance(place[0], dict)]
    holder, key = rng.choice(keys if keys and rng.random() < 0.5 else found)
    kind = rng.randrange(8)
    if kind == 0:
        del holder[key]
        return f"without {key!r}"
    if kind == 1 and isinstance(holder, dict):
        new = rng.choice([str(key) + "x", "", rng.choice(TEXTS), str(key).upper()])
        holder[new] = holder.pop(key)
        return f"{key!r} renamed to {new[:20]!r}"
    if kind == 2 and len(found) > 1:
        other, there = rng.choice(found)
        holder[key] = json.loads(dumps(other[there]))
        return f"{key!r} is what {there!r} was"
    if kind == 3 and isinstance(holder, list):
        holder.insert(key, holder[key])
        return f"item {key} twice"
    holder[key] = odd_value(rng, holder[key])
    return f"{key!r} = {short(holder[key])}"


def short(value):
    try:
        return repr(value)[:40]
    except RecursionError:
        return "nested deep"


def dumps(value):
    """JSON of values that may be nested deeper than json.dumps goes."""
    try:
        return json.dumps(value)
    except RecursionError:
        depth = 0
        while isinstance(value, list) and len(value) == 1:
            value, depth = value[0], depth + 1
        return json.dumps(None) if depth == 0 else "[" * depth + "0" + "]" * depth


def json_bytes(rng, content):
    """JSON as text: values, keys, keys twice, numbers that JSON has not, bytes."""
    kind = rng.randrange(10)
    if kind == 0:
        return any_bytes(rng, content)
    if kind == 1:
        text = content.decode()
        spots = [match for match in re.finditer(r'"[^"]*": *("[^"]*"|[-\w.]+)', text)]
        if spots:
            spot = rng.choice(spots)
            return (text[:spot.start()] + spot[0] + ", " + text[spot.start():]).encode(), f"{spot[0][:40]} twice"
    if kind == 2:
        text = content.decode()
        spots = [match for match in re.finditer(r'(?<=: )("[^"]*"|[-\w.]+)', text)]
        if spots:
            spot, raw = rng.choice(spots), rng.choice(RAW)
            return (text[:spot.start()] + raw + text[spot.end():]).encode(), f"{spot[0][:30]} is {raw!r}"
    root = json.loads(content)
    words = [damage_value(rng, root) for _ in range(rng.choice([1, 1, 1, 2, 4]))]
    return dumps(root).encode(errors="surrogatepass"), "; ".join(words)


def json_lines(rng, content):
    """One line of JSON lines damaged, or the file's bytes."""
    if rng.random() < 0.2:
        return any_bytes(rng, content)
    lines = content.split(b"\n")
    at = rng.choice([i for i, line in enumerate(lines) if line.strip()])
    lines[at], words = json_bytes(rng, lines[at])
    return b"\n".join(lines), f"line {at + 1}: {words}"


def toml_bytes(rng, content):
    """One line of a TOML file: its key, its value, twice, away."""
    lines = content.decode().splitlines()
    at = rng.randrange(len(lines))
    kind = rng.randrange(6)
    key, _, value = lines[at].partition(" = ")
    if kind == 0:
        return any_bytes(rng, content)
    if kind == 1:
        del lines[at]
        words = f"without {key}"
    elif kind == 2:
        lines.insert(at, lines[at])
        words = f"{key} twice"
    elif kind == 3:
        lines[at] = f"{key}{rng.choice(['x', '.y', '', ' ', '[]'])} = {value}"
        words = lines[at]
    else:
        new = rng.choice([json.dumps(rng.choice(TEXTS)), str(rng.choice(NUMBERS)), "true", "[]", "{}", "nan", "inf",
                          "-inf", "1979-05-27", "[[1], [\"a\"]]", "'''", value + "0", "-" + value, f"[{value}]"])
        lines[at] = f"{key} = {new}"
        words = lines[at][:60]
    return ("\n".join(lines) + "\n").encode(errors="surrogatepass"), words


def any_bytes(rng, content):
    """Bytes turned, cut, repeated, put in, of any file."""
    data = bytearray(content)
    at = rng.randrange(max(1, len(data)))
    kind = rng.randrange(7)
    if kind == 0 and data:
        for _ in range(rng.choice([1, 1, 4, 32])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data), "bits turned"
    if kind == 1:
        return bytes(data[:at]), f"cut to {at} bytes"
    if kind == 2:
        word = rng.choice(WORDS)
        return bytes(data[:at] + word + data[at:]), f"{word!r} put in at {at}"
    if kind == 3:
        word = rng.choice(WORDS)
        data[at:at + len(word)] = word
        return bytes(data), f"{word!r} written at {at}"
    if kind == 4:
        end = min(len(data), at + rng.choice([1, 8, 100, 10000]))
        return bytes(data[:at] + data[end:]), f"{at} to {end} taken out"
    if kind == 5:
        end = min(len(data), at + rng.choice([1, 8, 100, 10000]))
        return bytes(data[:end] + data[at:end] * rng.choice([1, 2, 50]) + data[end:]), f"{at} to {end} repeated"
    return bytes(data) + rng.choice(WORDS) * rng.choice([1, 100]), "bytes behind"


def safetensors(rng, content):
    """The header's JSON with its length right or wrong, or numbers of the data."""
    length = struct.unpack_from("<Q", content)[0]
    header, data = content[8:8 + length], content[8 + length:]
    kind = rng.randrange(10)
    if kind == 0:
        wrong = rng.choice([0, 1, length - 1, length + 1, 2**63, 2**64 - 1, len(content), 100_000_001])
        return struct.pack("<Q", wrong) + content[8:], f"header length {wrong}"
    if kind == 1:
        return any_bytes(rng, content)
    if kind <= 3 and len(data) >= 4:
        word = rng.choice([b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\xff\xff\xff\xff", b"\xff\xff\x7f\x7f"])
        at = rng.randrange(len(data) // 4) * 4
        return content[:8 + length] + data[:at] + word + data[at + 4:], f"{word!r} at byte {at} of the data"
    header, words = json_bytes(rng, header)
    if rng.random() < 0.3:
        data, more = any_bytes(rng, data)
        words += "; data: " + more
    return struct.pack("<Q", len(header)) + header + data, words


def template(rng, content):
    """A chat template (text) with pieces of others put in, doubled or away."""
    pieces = ["{{", "}}", "{%", "%}", "{% for m in messages %}", "{% endfor %}", "{% if x %}", "{% set x = x %}",
              "{{ raise_exception('\x1b[31m two\nlines') }}", "{{ messages * 9999999 }}", "{{ 'x' * 10**9 }}",
              "{{ messages[0]['content'].foo.bar }}", "{{ range(10**12) | list }}", "{{ 1 / 0 }}", "{{ -9223372036854775808 // -1 }}",
              "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "((((" * 200, "{{ strftime_now('%Y') }}", "{{ [] | tojson(indent=-3) }}",
              "{{ 'a' | replace('', 'bb') }}", "{{ messages | map(attribute='x') | join('\n') }}", "{# ", "{{ 'a'.center(10**10) }}",
              "{{ -1 % 0 }}", "{{ 2 ** 999999 }}", "{{ 'x'[1:2:0] }}"]
    tokens = re.split(r"({[{%].*?[%}]})", content.decode(), flags=re.S)
    words = []
    for _ in range(rng.choice([1, 2, 3])):
        at = rng.randrange(len(tokens))
        kind = rng.randrange(4)
        if kind == 0:
            words.append(f"without {tokens[at][:20]!r}")
            tokens[at] = ""
        elif kind == 1:
            tokens.insert(at, tokens[rng.randrange(len(tokens))])
            words.append(f"{tokens[at][:20]!r} put in")
        else:
            tokens.insert(at, rng.choice(pieces))
            words.append(f"{tokens[at][:40]!r} put in")
    return "".join(tokens).encode(), "; ".join(words)


# Formats of the value types of GGUF: type number to struct code; 8 is a text, 9 an array.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
FIELD_NUMBERS = {"B": [0, 1, 2, 255], "b": [-1, 127], "H": [0, 65535], "h": [-1], "I": [0, 1, 2, 3, 5, 8, 9, 31, 2**31, 2**32 - 1],
                 "i": [-1, -2**31, 2**31 - 1], "f": [0.0, -1.0, float("nan"), float("inf"), 1e-30],
                 "Q": [0, 1, 2, 3, 31, 33, 2**31, 2**62, 2**63, 2**64 - 1], "q": [-1, -2**63], "d": [float("nan"), -1.0]}


class Fields:
    """A GGUF header as a list of [name, kind, value]; kind is a struct code or "text"."""

    def __init__(self, content):
        self.content, self.at, self.list = content, 0, []
        self.scalar("magic", "I")
        self.scalar("version", "I")
        num_tensors, num_values = self.scalar("tensors", "Q"), self.scalar("values", "Q")
        for _ in range(num_values):
            key = self.text("key")
            self.value(key, self.scalar(f"type of {key}", "I"))
        for _ in range(num_tensors):
            name = self.text("tensor")
            for dim in range(self.scalar(f"dims of {name}", "I")):
                self.scalar(f"dim {dim} of {name}", "Q")
            self.scalar(f"type of {name}", "I")
            self.scalar(f"offset of {name}", "Q")
        self.end = self.at

    def scalar(self, name, code):
        value, = struct.unpack_from("<" + code, self.content, self.at)
        self.at += struct.calcsize("<" + code)
        self.list.append([name, code, value])
        return value

    def text(self, name):
        length, = struct.unpack_from("<Q", self.content, self.at)
        value = self.content[self.at + 8:self.at + 8 + length]
        self.at += 8 + length
        self.list.append([name, "text", value])
        return value.decode(errors="replace")

    def value(self, key, kind):
        if kind == 8:
            self.text(f"value of {key}")
        elif kind == 9:
            inner, count = self.scalar(f"item type of {key}", "I"), self.scalar(f"count of {key}", "Q")
            for i in range(count):
                self.value(f"{key}[{i}]", inner)
        else:
            self.scalar(f"value of {key}", SCALARS[kind])

    def joined(self):
        """The header anew; the data keeps its place by the format's rule (32 bytes)."""
        parts = []
        for _, code, value in self.list:
            if code == "text":
                parts.append(struct.pack("<Q", len(value)) + value)
            elif code == "raw":
                parts.append(value)
            else:
                parts.append(struct.pack("<" + code, value))
        return b"".join(parts)


def damage_field(rng, field):
    name, code, value = field
    if code == "text":
        if rng.random() < 0.3:
            length = rng.choice([0, 2**63, 2**64 - 1, 65536, len(value) + 1])
            field[1:] = ["raw", struct.pack("<Q", length) + value]
            return f"{name} of length {length}"
        field[2] = rng.choice([text.encode() for text in TEXTS] + [b"\xff\xfe", value + b"\0", value * 2])
        return f"{name} = {field[2][:30]!r}"
    near = [value + 1, value - 1, value * 2] if code in "IQiqhbHB" else [-value, value * 1e30]
    size = struct.calcsize("<" + code)
    for new in [rng.choice(FIELD_NUMBERS[code] + near), 0]:
        try:
            struct.pack("<" + code, new)
        except (struct.error, OverflowError):
            continue
        field[2] = new
        break
    return f"{name} ({size} bytes) = {field[2]}"


def gguf(rng, content):
    """One or more fields of the header, the order of its parts, or any bytes."""
    if rng.random() < 0.15:
        return any_bytes(rng, content)
    fields = Fields(content)
    start = (fields.end + 31) // 32 * 32
    # Fields of a vocabulary are many: half of the damage goes to the others.
    few = [field for field in fields.list if "[" not in field[0]]
    words = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        words.append(damage_field(rng, rng.choice(few if rng.random() < 0.7 else fields.list)))
    header = fields.joined()
    padding = bytes(-len(header) % 32)
    return header + padding + content[start:], "; ".join(words)
