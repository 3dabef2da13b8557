#!/usr/bin/env python3
"""Writes tests/models/data/configs_v5: the families' config.json as transformers 5 has them.

Needs the PyPI package transformers 5.23, no torch. Usage: make.py

<case>.json   ../families/<case>/config.json, which transformers 4 wrote, read and saved by
              transformers 5
"""

import json
import pathlib

import transformers

OUT = pathlib.Path(__file__).resolve().parent


def main():
    for path in sorted(OUT.parent.glob("families/*/config.json")):
        if "quantization" in json.loads(path.read_text()):
            continue
        config = transformers.AutoConfig.from_pretrained(path.parent)
        text = json.loads(config.to_json_string(use_diff=True))
        (OUT / f"{path.parent.name}.json").write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
