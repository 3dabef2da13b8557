"""Seeds of the fuzzer of answers: a family by its place in tool_families(), how the answer begins, and its text."""

SEP, BEGIN, END = "<｜tool▁sep｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
ANSWERS = {
    "harmony": (0, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f "
                   "<|constrain|>json<|message|>{\"x\": 1}"),
    "deepseek": (1, f"<｜tool▁calls▁begin｜>{BEGIN}function{SEP}f\n```json\n{{}}\n```{END}<｜tool▁calls▁end｜>"),
    "kimi": (2, "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
                "<|tool_call_end|><|tool_calls_section_end|>"),
    "deepseek_v31": (3, f"<think>a</think>b{BEGIN}g{SEP}{{\"x\": [\"}}\"]}}{END}c"),
    "glm": (4, "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"),
    "qwen_coder": (5, "<tool_call>\n<function=f>\n<parameter=y>\n[1, 'a']\n</parameter>\n</function>\n</tool_call>"),
    "lfm2": (6, "<|tool_call_start|>[f(x='\\u00e9', y=[1, {\"a\": None}]), g()]<|tool_call_end|>"),
    "gemma4": (7, '<|tool_call>call:f{x:<|"|>a<|"|>,y:[{k:1.5}]}<tool_call|>'),
    "mistral": (8, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{}"),
    "mistral_list": (8, '[TOOL_CALLS] [{"name": "f", "arguments": {}}]'),
    "function_gemma": (9, "<start_function_call>call:f{x:<escape>a<escape>}<end_function_call>"),
    "command": (10, '<|START_ACTION|>[{"tool_name": "f", "parameters": {}}]<|END_ACTION|>'),
    "hermes": (12, '<think>a</think>b<tool_call>{"name": "f", "arguments": "{}"}</tool_call>'),
    "hermes_members": (12, 'a\n<tool_call>{"name": "f", "arguments": {"x": "</tool_call>"}, "id": "}"}</tool_call>\n'
                           '<tool_call>{"arguments": "</tool_call>'),
    "llama": (13, '<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g"}'),
}


def answer_seeds():
    for name, (family, text) in ANSWERS.items():
        yield name, bytes([family, 0]) + text.encode()
    yield "no_tools", bytes([12, 1]) + b"<tool_call>{}</tool_call>"
    yield "in_reasoning", bytes([5, 2]) + b"a</think><tool_call>"
    yield "in_calls", bytes([8, 4]) + b'[{"name": "f", "arguments": {}}]'
    yield "deep", bytes([6, 0]) + b"<|tool_call_start|>f(x=" + b"[" * 200 + b"]" * 200 + b")<|tool_call_end|>"
