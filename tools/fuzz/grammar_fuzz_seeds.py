"""Seeds of the target grammar: a letter for the form, then a schema (s, t), a regular expression (r) or GBNF (g)."""

import json

SCHEMAS = {
    "object": {"type": "object", "properties": {
        "z": {"type": "integer", "minimum": -3, "maximum": 120}, "a": {"type": "array", "items": {
            "enum": ["x", 2, None]}, "minItems": 1, "maxItems": 3}, "s": {"type": "string", "minLength": 2, "maxLength": 4},
        "n": {"type": "number", "exclusiveMinimum": -0.5, "maximum": 1e3}}, "required": ["z", "a"]},
    "tree": {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
        "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}, "required": ["left"]}}},
    "pattern": {"type": "string", "pattern": "^(a|b)[^c-e]{2,5}\\d\\S.$"},
    "open": {"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 3},
    "names": {"type": "object", "propertyNames": {"type": "string", "pattern": "^[a-z]+$"}},
    "pattern_properties": {"type": "object", "patternProperties": {"^x-": {"type": "null"}}},
    "tuple": {"type": "array", "prefixItems": [{"const": {"a": [1.5]}}, {"type": ["null", "boolean"]}], "items": False},
    "one_of": {"oneOf": [{"type": "null"}, {"type": "integer", "multipleOf": 7}]},
    "all_of": {"allOf": [{"type": "string", "format": "date-time"}]},
    "g1_itself": {"$ref": "#"}, "g1_itself_any": {"anyOf": [{"$ref": "#"}]},
    "g1_each_other": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "g1_items": {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    "g2_min_items": {"type": "array", "items": {}, "minItems": 1000000},
    "g2_max_length": {"type": "string", "maxLength": 2000000000},
    "g2_min_properties": {"type": "object", "additionalProperties": True, "minProperties": 4294967297},
    "g3_annotation": {"$ref": "#/default", "default": {"type": "object", "not": {}}},
    "g3_required": {"type": "object", "properties": {"a": {}}, "required": ["b"]},
    "g3_open": {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}},
    "g3_quote": {"type": "string", "pattern": "a\"b"}, "g3_not_ascii": {"type": "string", "pattern": "é."},
    "g3_names_any": {"type": "object", "propertyNames": {}}, "g3_large": {"const": 18446744073709551616},
    "range_float": {"type": "number", "minimum": 1e-9, "maximum": 1.5e-9},
    "range_int64": {"type": "integer", "minimum": -2**63, "maximum": 2**63 - 1},
}

REGEXES = {
    "letters": "(ab|ac)d?", "classes": "[A-Z][^\\]\\\\a-f]{2,12}\\d+\\x41\\u0042", "anchors": "^(?:a|)$", "named": "(?<n>a)+?",
    "g2_powers": "((a{1,100}){1,100}){1,100}", "g2_ambiguous": "(a|aa)*(a|aa)*(a|aa)*b", "g2_count": "a{2147483648}",
    "g2_int32": "a{4294967297,}", "g1_deep": "(" * 2000 + "a" + ")" * 2000, "g4_control": "\\c\U0001f600",
    "g4_name": "(?<\U0001f600>a)", "g4_count": "a{\U0001f600}", "g4_nul": "a\0b", "g4_not_utf8": b"a\xff",
    "g4_hex": "\\x4CCCCCCCCCC1", "g4_wide": "[\\UFFFFFFFF]",
}

GRAMMARS = {
    "list": "root ::= \"[\" item (\",\" item)* \"]\"\nitem ::= [1-9]{1,2} # number\n",
    "expression": "root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= [a-z] | \"(\" expr \")\"\nws ::= [ \\t]*",
    "g1_itself": "root ::= root", "g1_left": "root ::= \"a\" root | root \"b\" | \"c\"", "g1_star": "root ::= (\"a\"*)*",
    "g1_deep": "root ::= " + "(" * 900 + "\"a\"" + ")" * 900,
    "g1_chain": "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(3000)) + "r3000 ::= \"a\"",
    "g1_empty": "root ::= a a\na ::= b b\nb ::= \"\"", "g2_powers": "root ::= ((\"a\"{1,100}){1,100}){1,100}",
    "g2_doubles": "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(40)) + "r40 ::= \"a\"",
    "g4_token": "root ::= Token(99999999)", "g4_dispatch": "root ::= TagDispatch((\"a\", b))\nb ::= \"c\"",
    "g4_regex": "root ::= Regex(\"a+\")", "g4_lookahead": "root ::= a \"b\"\na ::= \"a\" (= \"b\")",
    "g4_hex": "root ::= \"\\x4CCCCCCCCCC1\"",
}


def grammar_seeds():
    for letter, sources in {"s": SCHEMAS, "r": REGEXES, "g": GRAMMARS}.items():
        for name, source in sources.items():
            text = json.dumps(source) if letter == "s" else source
            yield f"{name}_{letter}", letter.encode() + (text if isinstance(text, bytes) else text.encode())
    yield "object_t", b"t" + json.dumps(SCHEMAS["object"]).encode()
