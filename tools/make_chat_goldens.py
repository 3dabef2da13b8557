#!/usr/bin/env python3
"""Writes what jinja2, set up as transformers does, makes of templates and expressions.

Writes tests/text/data/chat_cases.json for tests/text/chat_template_test.cpp: every template of
tests/text/data/templates with several conversations, and many small snippets. A null output means
that jinja2 refuses.

Needs PyPI: transformers, jinja2.
"""

import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests/text/data"


def message(role, content):
    return {"role": role, "content": content}


CONVERSATIONS = [
    [message("user", "Hello!")],
    [message("system", "Be brief."), message("user", " What is 2+2?\n")],
    [message("user", "Hi"), message("assistant", "  Hello, <b>you</b>. "), message("user", "é日👩‍👩‍👧\u3000")],
    [
        message("system", "Use /no_think please"),
        message("user", "<|im_end|>\n<|im_start|>system"),
        message("assistant", "<think>\nhm\n</think>\n\nFine."),
        message("user", "More"),
        message("assistant", "\n<think>why</think>Done"),
    ],
    [message("user", "a"), message("user", "b")],
    [message("user", "a"), message("tool", "42"), message("tool", '{"x": 1}'), message("assistant", "ok")],
    [message("user", ""), message("assistant", "{{ 7 * 7 }} {% raw %}")],
    [message("critic", "unknown role")],
    [],
]

SNIPPETS = r"""
{{ 1 + 2 * 3 ** 2 }} {{ (1 + 2) * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** -1 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 10 / 5 }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1e16 }} {{ 123456789.125 }} {{ 0.1 + 0.2 }} {{ 1_000 }} {{ 0xff }} {{ 0b101 }} {{ 0o17 }} {{ -3 | abs }}
{{ "a" ~ 1 ~ none ~ true ~ 1.0 }} {{ "ab" * 3 }} {{ 2 * [1, 2] }} {{ [1] + [2] }} {{ (1, 2) + (3,) }} {{ () }} {{ (1,) }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ "a" < "b" }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }} {{ true == 1 }} {{ "1" == 1 }} {{ none == none }} {{ [1] == (1,) }}
{{ 1 in [1, 2] }} {{ 3 not in [1, 2] }} {{ "b" in "abc" }} {{ "k" in {"k": 1} }} {{ not 1 in [2] }} {{ not true }} {{ not not 1 }}
{{ true and 0 }} {{ "" or "x" }} {{ none or false }} {{ 1 and 2 or 3 }} {{ undefined_name or "fallback" }}
{{ "yes" if 1 else "no" }} {{ "yes" if 0 }}| {{ "a" if false else "b" if false else "c" }}
{{ undefined_name }}|{{ undefined_name is defined }} {{ undefined_name | default("d") }} {{ "" | default("d") }} {{ "" | default("d", true) }} {{ none | d("x") }}
{{ undefined_name.attribute }}
{{ undefined_name + 1 }}
{{ none.x }}|{{ {}.x }}|{{ {"a": 1}.a }}{{ {"a": 1}["a"] }}{{ {"a": {"b": [5, 6]}}.a.b[1] }} {{ [1, 2, 3].1 }} {{ [1][5] }}|
{{ none["x"] }}|{{ 5["x"] }}|{{ "abc"[0] }}{{ "abc"[-1] }}{{ "aé日"[1] }}{{ "abc"[7] }}|
{{ [1, 2, 3, 4][1:] }} {{ [1, 2, 3, 4][:-1] }} {{ [1, 2, 3][::-1] }} {{ "hello"[::-1] }} {{ "hello"[1:4:2] }} {{ "hello"[-3:] }} {{ (1, 2, 3)[:2] }} {{ "abc"[5:] }}| {{ [1, 2, 3][10:0:-2] }}
{{ "abc"[::0] }}
{{ "  x ".strip() }}|{{ "xxaxx".strip("x") }}|{{ " a ".lstrip() }}|{{ " a ".rstrip() }}|{{ "\u3000a\u00a0\x1c".strip() }}|{{ "abcab".rstrip("ba") }}
{{ "a,b,,c".split(",") }} {{ " a  b ".split() }} {{ "a b c".split(" ", 1) }} {{ "a b c".rsplit(" ", 1) }} {{ "a  b c".split(none, 1) }} {{ "".split() }} {{ "".split(",") }}
{{ "a\nb\r\nc\n".splitlines() }} {{ "abc".startswith("ab") }} {{ "abc".endswith(("x", "c")) }} {{ "abc".find("c") }} {{ "日本".find("本") }} {{ "abc".count("b") }} {{ "aXbX".replace("X", "-", 1) }} {{ "ab".replace("", "-") }}
{{ "Straße ÉTÉ ŉ".upper() }} {{ "ÉTÉ İ ΑΣ ΣΑ".lower() }} {{ "hello wORLD it's".title() }} {{ "hELLO".capitalize() }} {{ "aB".swapcase() }} {{ "ǆ".title() }} {{ "ß".capitalize() }}
{{ "hello wORLD it's a-b (c) {d}" | title }} {{ "hELLO" | capitalize }} {{ "x" | upper }} {{ "X" | lower }} {{ " x " | trim }}| {{ "xyx" | trim("x") }}
{{ "a".join(["1", "2"]) }} {{ [1, 2, "x"] | join("-") }} {{ [{"n": 1}, {"n": 2}] | join(",", attribute="n") }} {{ "abc" | join(".") }} {{ [] | join("x") }}|
{{ "abc" | length }} {{ [1, 2] | count }} {{ {"a": 1} | length }} {{ "日本👩" | length }} {{ undefined_name | length }}
{{ 5 | length }}
{{ [3, 1, 2] | sort }} {{ ["b", "A", "c"] | sort }} {{ ["b", "A", "c"] | sort(case_sensitive=true) }} {{ [1, 2] | sort(reverse=true) }} {{ [{"k": 2, "v": "x"}, {"k": 1, "v": "y"}] | sort(attribute="k") | map(attribute="v") | list }}
{{ [1, "a"] | sort }}
{{ [1, 2, 1, "A", "a"] | unique | list }} {{ {"b": 1, "A": 2} | dictsort }} {{ {"b": 1, "a": 2} | dictsort(by="value", reverse=true) }} {{ [4, 2, 9] | min }} {{ [4, 2, 9] | max }} {{ [] | max }}| {{ [1, 2, 3] | sum }} {{ [{"a": 1}, {"a": 2.5}] | sum(attribute="a") }}
{{ [1, 2, 3] | first }} {{ [1, 2, 3] | last }} {{ [] | first }}| {{ "abc" | first }} {{ "abc" | last }} {{ [1, 2, 3] | reverse | list }} {{ "abc" | reverse }} {{ "abc" | list }} {{ {"a": 1, "b": 2} | list }}
{{ {"a": 1, "b": [true, none]} | items | list }} {{ {"a": 1}.items() | list }} {{ {"a": 1}.keys() | list }} {{ {"a": 1}.values() | list }} {{ {"a": 1}.get("a") }} {{ {"a": 1}.get("b") }} {{ {"a": 1}.get("b", 5) }}
{{ [1, 2, 3] | map("string") | list }} {{ ["a"] | map("upper") | list }} {{ [{"a": {"b": 1}}] | map(attribute="a.b") | list }} {{ [{}] | map(attribute="x", default="d") | list }} {{ [" a "] | map("trim") | map("length") | list }}
{{ [1, 2, 3, 4] | select("odd") | list }} {{ [1, 0, 2] | select | list }} {{ [1, 2, 3] | reject("equalto", 2) | list }} {{ [{"r": "u"}, {"r": "a"}] | selectattr("r", "==", "u") | list }} {{ [{"r": 1}, {}] | rejectattr("r") | list }} {{ [{"r": 1}, {}] | selectattr("r", "defined") | list | length }} {{ ["a", "b"] | select("in", ["a"]) | list }}
{{ "42" | int }} {{ " 7 " | int + 1 }} {{ "x" | int }} {{ "x" | int(5) }} {{ "3.9" | int }} {{ "ff" | int(base=16) }} {{ 3.99 | int }} {{ "1.5" | float }} {{ "x" | float }} {{ true | int }} {{ "-5" | int }} {{ "1_0" | int }}
{{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.1 | round(method="ceil") }} {{ 2.9 | round(method="floor") }} {{ 5 | round }} {{ -3.7 | abs }}
{{ "a\nb\n\nc" | indent }}|{{ "a\nb" | indent(2, true) }}|{{ "a\n\nb" | indent(1, blank=true) }}|{{ "a\nb" | indent("> ") }}|{{ "" | indent }}|{{ "a\n" | indent }}|
{{ "<a href='x'>&\"" | e }} {{ "<b>" | safe }} {{ 5 | string + "x" }} {{ "ab" | center(6) }}|{{ "ab".center(5) }}|{{ "a".ljust(3) }}|{{ "a".rjust(3) }}|
{{ {"a": 1, "b": [1, 2.5, "é日\n\"", none, true], "c": {}} | tojson }} {{ [] | tojson }} {{ "x</script>'" | tojson }} {{ {"b": 1, "a": 2} | tojson(sort_keys=true) }} {{ {1: 2, none: 3} | tojson }}
{{ {"a": [1, {"b": 2}], "c": [], "d": {}} | tojson(indent=2) }}
{{ [1, 2] | tojson(separators=(",", ":")) }} {{ "é👩\x7f\x01" | tojson(ensure_ascii=true) }} {{ "\x7f\x01\u2028" | tojson }} {{ 1e400 | tojson }}
{{ undefined_name | tojson }}
{{ ["a'b", 'c"d', "e'f\"g", "h\\i\n\t", none, true, 1.5, {"k": (1,)}] }} {{ "x" }} {{ {} }} {{ [[]] }}
{{ x is defined }} {{ none is none }} {{ "s" is string }} {{ {} is mapping }} {{ [] is sequence }} {{ "s" is iterable }} {{ 5 is iterable }} {{ 5 is number }} {{ true is number }} {{ true is integer }} {{ 5 is integer }} {{ 5.0 is float }} {{ true is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }}
{{ 4 is even }} {{ 4 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 5 is eq 5 }} {{ 5 is gt 3 }} {{ 5 is in [5] }} {{ "ab" is lower }} {{ "AB" is upper }} {{ none is not none }} {{ none is sameas none }} {{ range is callable }} {{ 5 is not string }} {{ "a1" is lower }} {{ "1" is lower }}
{{ "a" is in "abc" and 1 }} {{ 3 if x is not defined else 4 }} {{ "trim" is filter }} {{ "odd" is test }}
{% for i in [1, 2, 3] %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.previtem }}/{{ loop.nextitem }} {% endfor %}
{% for i in [] %}x{% else %}empty{% endfor %} {% for i in [1] %}x{% else %}empty{% endfor %} {% for i in undefined_name %}x{% else %}none{% endfor %}
{% for i in range(5) if i is odd %}{{ loop.index }}:{{ i }} {% endfor %}{% for k, v in {"a": 1, "b": 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}{% for c in "aé" %}{{ c }}.{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in range(3) %}{% for j in range(2) %}{{ loop.depth }}{{ i }}{{ j }} {% if j == 0 %}{% continue %}{% endif %}{% endfor %}{{ loop.cycle("a", "b") }}{{ loop.changed(i // 2) }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for i in 5 %}{% endfor %}
{{ range(3) | list }} {{ range(1, 7, 2) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(3)[1] }} {{ 2 in range(3) }}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }} {% set a, b = 1, 2 %}{{ a }}{{ b }} {% set t = 1, 2 %}{{ t }}
{% set ns = namespace(n=0, items=[]) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% set ns.items = ns.items + [i] %}{% endfor %}{{ ns.n }} {{ ns.items }} {{ ns.missing is defined }} {{ ns.other }}|
{% set x = {} %}{% set x.y = 1 %}
{% set block %} a {{ 1 + 1 }} b {% endset %}[{{ block }}]{% set upper | upper %}abc{% endset %}{{ upper }}{% set u | trim | upper %} z {% endset %}{{ u }}
{% if false %}a{% elif 0 %}b{% elif 1 %}c{% else %}d{% endif %}{% if x is defined and x.y %}e{% endif %}{% if true %}{% set y = 5 %}{% endif %}{{ y }}
{% macro m(a, b=2, c="x") %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c="z") }} {{ m() }} {{ m(a=1, b=5) | upper }} {{ m.name }}
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * (fact(n - 1) | int) }}{% endif %}{% endmacro %}{{ fact(10) }}
{% macro outer() %}[{{ caller() }}]{% endmacro %}{% call outer() %}in{{ 1 }}{% endcall %}{% macro each(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) each([1, 2]) %}<{{ i }}>{% endcall %}
{% macro va(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ va(1, 2, 3, k=4) }} {% set g = 7 %}{% macro use() %}{{ g }}{{ late }}{% endmacro %}{% set late = 8 %}{{ use() }}
{% filter upper %}abc {{ "x" }}{% endfilter %} {% with a = 1, b = 2 %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ c }}|{{ a }}|
{% raw %}{{ not }} {% this %}{% endraw %} {% raw -%}   x  {%- endraw %} {# comment {{ x }} #}after{#- c -#}   z
{% generation %}gen {{ 1 }}{% endgeneration %} {% print(5) %} {{ "a" "b" 'c' }} {{ "\t\x41\u00e9\U0001F600\101\q\\\'" }} {{ 'it''s' }}
{{ {"items": 5}.items is callable }} {{ {"items": 5}["items"] }} {{ {"keys": 5, "a": {"get": 1}}.a["get"] }}
{{ none | map("upper") | list }} {{ none | selectattr("r") | list }} {{ 0 | reject("odd") | list }} {{ undefined_name | map(attribute="x") | join }} {{ "" | select("no_such_test") | list }}|
{{ 5 | map("upper") | list }}
{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(*[1]) }} {{ m(1, *[3, 4]) }} {{ m(*"xy") }} {{ m(**{"b": 5}) }} {{ m(*[1], b=3) }} {{ m(0, **{"c": 1}) }} {{ m(*[], **{}) }} {{ dict(**{"q": 1}) }} {{ range(*[1, 4]) | list }} {{ [3, 1] | sort(*[true]) }}
{% macro m(a) %}{{ a }}{% endmacro %}{% set calls = [m, m] %}{% for c in calls %}{{ c(*[loop.index]) }}{% endfor %}
{% macro m(a, b=2) %}{{ a }}{% endmacro %}{{ m(**{"b": 5}, b=1) }}
{% macro m(a, b=2) %}{{ a }}{% endmacro %}{{ m(b=1, **{"b": 5}) }}
{{ dict(*[1], 2) }}
{{ dict(**{}, **{}) }}
{{ dict(*5) }}
{{ dict(**5) }}
{{ [1, 2].append(3) }}
{{ {"a": 1}.update({"b": 2}) }}
{{ "".__class__ }}
{{ "".__class__.__mro__ }}
{{ raise_exception("stop here") }}
{% if false %}{{ 1 | no_such_filter }}{% endif %}fine
{% if true %}{{ 1 | no_such_filter }}{% endif %}
{{ 1 | no_such_filter }}
{{ 1 is no_such_test }}
{{ no_such_function(1) }}
{{ 1 / 0 }}
{{ "a" + 1 }}
{{ 1 + "a" }}
{{ [1] + "a" }}
{{ -"a" }}
{{ "a" < 1 }}
{{ 1() }}
{{ "abc".no_such_method() }}
{{ {[1]: 2} }}
{{ (1, 2)[0] }}{{ dict(a=1, b=2) }} {{ dict([["x", 1]]) }} {{ dict({"q": 1}, r=2) }} {{ {"a": 1, "a": 2} }} {{ {1: "i", "1": "s"}["1"] }} {{ {1: "i"}[true] }}
{{ "x".isdigit() }} {{ "12".isdigit() }} {{ "aé".isalpha() }} {{ "a1".isalnum() }} {{ " ".isspace() }} {{ "".isspace() }} {{ "AB".isupper() }} {{ "ab".islower() }} {{ "prefix-x".removeprefix("prefix-") }} {{ "x.py".removesuffix(".py") }} {{ "a=b=c".partition("=") }} {{ "a=b=c".rpartition("=") }} {{ "abc".partition("x") }}
{{ [1, 2, 1].count(1) }} {{ [1, 2, 1].index(2) }} {{ "abc".index("c") }} {{ "abab".rfind("ab") }} {{ (1, 2, 1).count(1) }}
{{ "%s" | string }} {{ 5 ~ 6 }} {{ [1, [2, [3]]] }} {{ 1 if [] else 2 }} {{ "false" if "" else "true" }} {{ {} or "empty" }} {{ 0.0 or "zero" }}
{{ 'a' if x else }}
{% for %}
{% endif %}
{% if x %}
{{ x
{% unknown %}
{{ ) }}
{{ (1 }}
{{ "abc }}
{{ a b }}
{# open
{% set %}
{% macro %}{% endmacro %}
{% break %}
{{ 5 % }}
{{ | upper }}
{{ a. }}
{% set true = 5 %}
{% raw %} never closed
text only, with { braces } and % signs % { % }
""".strip("\n").split("\n")

# Templates in which line ends and white space count.
LAYOUTS = [
    "a\n  {% if true %}\n  b\n  {% endif %}\n c",
    "a\n  {%- if true -%}\n  b\n  {%- endif -%}\n c",
    "a {%+ if true %}\n b\n  {%+ endif +%}\n c\n",
    "  {% if true %}  x  {% endif %}  \n\n",
    "\n\n{% set x = 1 %}\n\n{{ x }}\n\n",
    "{{- ' a ' -}}   {{ 'b' -}}\n\n {{- 'c' }}\n",
    "a\r\nb\r{% if true %}\r\nc{% endif %}",
    "x  {# c #}\n  {# d #}\n  y {#- e -#}\n z",
    "\t {% for i in [1, 2] %}\n\t {{ i }}\n\t {% endfor %}\nend",
    "{% raw %}\n  {{ x }}\n{% endraw %}\n  end",
    "a\n  {% raw %}  r  {%- endraw -%}   b",
    "{%- for i in [1,2] -%}\n{{ i }}\n{%- endfor %}\n\n{% if 1 %}{% endif %}\nq",
    "{{ {'a': {'b': 1}}['a'] }}{{ '}}' }}{{ \"%}\" }}",
    "a  \u3000{%- if true %} b{% endif %}",
    "{% if true %}\n\n{% endif %}\n",
    "{{ 1 }}\n",
    "{{ 'multi\nline' }}{% set x = [1,\n 2] %}{{ x }}",
    "{%if true%}x{%endif%}{%-if true-%} y {%-endif-%} z",
    "1{% set x %}\n  a\n  {% endset %}\n[{{ x }}]",
    "  {{ 1 }}\n  {{ 2 }}\n",
]


def render(source, messages, add_generation_prompt):
    try:
        template = _compile_jinja_template(source)
        return template.render(
            messages=messages,
            tools=None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            bos_token="<s>",
            eos_token="</s>",
        )
    except Exception:  # whatever jinja2 refuses with
        return None


def main():
    cases = {"conversations": CONVERSATIONS, "templates": {}, "snippets": []}
    for path in sorted((DATA / "templates").glob("*.jinja")):
        source = path.read_bytes().decode()
        cases["templates"][path.stem] = [
            [render(source, c, prompt) for prompt in (False, True)] for c in CONVERSATIONS
        ]
    for source in SNIPPETS + LAYOUTS:
        cases["snippets"].append([source, render(source, CONVERSATIONS[2], True)])
    text = json.dumps(cases, ensure_ascii=False, indent=0)
    (DATA / "chat_cases.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
