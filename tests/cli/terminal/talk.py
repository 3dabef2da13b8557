#!/usr/bin/env python3
"""Talks to a model on a terminal: talk.py WEFT MODEL RANKS FOLDER. Prints "talked" where all is well."""

import json
import os
import pathlib
import re
import signal
import sys

from terminal import Terminal

FRANCE = "What is the capital of France?"
PARIS = "The capital of France is Paris."


class Talk(Terminal):
    """weft chat, past its greeting. What is typed before stays in `folder`."""

    def __init__(self, folder, *args):
        weft, model, ranks = sys.argv[1:4]
        super().__init__([weft, "chat", "-m", model, "--tp", ranks, *args], WEFT_CHAT_HISTORY=f"{folder}/history")
        expect(self.prompt(), "/help lists commands")

    def says(self, line):
        """Types a line and returns what is shown until the next prompt."""
        self.type(line + "\r")
        return self.prompt()

    def end(self):
        self.type("\x04")
        expect(str(self.status()), "0")


def expect(text, part):
    if part not in text:
        raise SystemExit(f"expected {part!r} in:\n{text}")


def edits_and_remembers_lines(folder):
    talk = Talk(folder)
    answer = talk.says("What is the capital of Frxnce?" + "\x1b[D" * 4 + "\x08a")
    expect(answer, PARIS)
    expect(answer, "[7 tokens, ")
    expect(talk.says(""), "> ")
    expect(talk.says("And of \\\rItaly?"), "Rome")
    expect(talk.says('"""\rAnd\r\rof Spain?\r"""'), "Madrid")
    talk.end()
    talk = Talk(folder)
    expect(talk.says("\x1b[A" * 3), PARIS)
    talk.end()


def takes_pasted_text_whole(folder):
    talk = Talk(folder)
    talk.paste("Look at this:\n\n\tint x;\n\n" + FRANCE)
    talk.wait("France")
    talk.type("\r")
    talk.prompt()
    talk.says(f"/save {folder}/pasted.json")
    talk.end()
    question = json.loads(pathlib.Path(folder, "pasted.json").read_text())["messages"][0]
    assert question == {"role": "user", "content": "Look at this:\n\n\tint x;\n\n" + FRANCE}, question


def goes_on_after_ctrl_c(folder):
    talk = Talk(folder, "--ignore-eos", "-n", "4000")
    talk.type("Tell me a story.\r")
    talk.wait(r"\n.*\w+ \w+ ")
    talk.type("\x03")
    talk.prompt()
    talk.type("half a question")
    talk.wait("question")  # Ctrl-C takes away what has not been read
    talk.type("\x03")
    assert "/quit" not in talk.prompt()
    talk.type("\x03")
    expect(talk.prompt(), "Ctrl-D or /quit ends the talk")
    talk.says("/set ignore-eos false")
    talk.says("/reset")
    expect(talk.says(FRANCE), PARIS)
    talk.end()


def forgets_what_does_not_fit(folder):
    talk = Talk(folder, "--ctx-size", "160", "--ignore-eos", "-n", "60")
    expect(talk.says(FRANCE), "the answer was cut at 60 tokens; /set max-tokens allows more")
    expect(talk.says("And of Italy?"), "the context of 160 is full; --ctx-size may allow more")
    talk.says("/set ignore-eos false")
    expect(talk.says("And of Spain?"), "the context is full: the 2 oldest questions and what was answered are forgotten")
    expect(talk.says("word " * 200), "tokens, the context holds 160; ask a shorter one")
    expect(talk.says("/reset"), "what was said is forgotten")
    expect(talk.says(FRANCE), PARIS)
    # A question that does not fit any more keeps its answer.
    talk.says("/system " + "word " * 160)
    expect(talk.says("/regen"), "ask a shorter one")
    talk.says("/system -")
    talk.says(f"/save {folder}/kept.json")
    talk.end()
    messages = json.loads(pathlib.Path(folder, "kept.json").read_text())["messages"]
    assert [each["content"] for each in messages] == [FRANCE, PARIS], messages


def obeys_commands(folder):
    talk = Talk(folder)
    expect(talk.says("/help"), "/regen ")
    expect(talk.says("/hlep"), "no command '/hlep' (did you mean '/help'?)")
    expect(talk.says("/regen"), "chat: no question to answer again; ask one")
    expect(talk.says(FRANCE), PARIS)
    talk.says("/set max-tokens 3")
    expect(talk.says("/regen"), "The capital of\n")
    expect(talk.says("/set temp hot"), "/set temp: ")
    # What would be refused with the next question is refused at once.
    expect(talk.says("/set logit-bias 999999999=1"), "logit bias: token 999999999, expected 0 to 49151")
    expect(talk.says("/set regex ("), "grammar: ")
    expect(talk.says("/set temp 0.8"), "seed ")
    talk.says("/set temp 0")
    talk.says("/set regex [0-9]+")
    assert re.search(r"regex +\[0-9\]\+", talk.says("/set"))
    talk.says("/set regex none")
    assert not re.search(r"regex +\S", talk.says("/set"))
    expect(talk.says("/set ctx-size 12"), "no setting 'ctx-size'")
    talk.says("/set max-tokens -1")
    expect(talk.says("/regen"), PARIS)
    talk.says("/set stop of\\\rIt")  # On all ranks one setting, though it has two lines.
    expect(talk.says("/regen"), PARIS)
    talk.says("/set stop none")
    expect(talk.says("/undo"), f"forgotten: {FRANCE}")
    talk.says("/sys\tYou answer.")
    expect(talk.says("/system"), "system prompt: You answer.")
    pathlib.Path(folder, "question").write_text(FRANCE + "\n")
    talk.says(f"/read {folder}/question")
    talk.says("Say it in one sentence.")
    talk.says(f"/save {folder}/talk.json")
    expect(talk.says(f"/save {folder}/talk.json"), "is there already")
    talk.end()
    messages = json.loads(pathlib.Path(folder, "talk.json").read_text())["messages"]
    assert [each["role"] for each in messages] == ["system", "user", "assistant"], messages
    assert messages[1]["content"] == FRANCE + "\n\nSay it in one sentence.", messages
    talk = Talk(folder)
    expect(talk.says(f"/load {folder}/talk.json"), "3 messages from ")
    expect(talk.says("/undo"), "forgotten: " + FRANCE)
    talk.type("/quit\r")
    expect(str(talk.status()), "0")


def ends_when_asked(folder):
    talk = Talk(folder)
    os.kill(talk.pid, signal.SIGTERM)
    expect(str(talk.status()), str(128 + signal.SIGTERM))


def main():
    folder = sys.argv[4]
    for case in (edits_and_remembers_lines, takes_pasted_text_whole, goes_on_after_ctrl_c, forgets_what_does_not_fit,
                 obeys_commands, ends_when_asked):
        case(folder)
    print("talked")


if __name__ == "__main__":
    main()
