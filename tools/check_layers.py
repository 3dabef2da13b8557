#!/usr/bin/env python3
"""Keeps includes going down: python3 tools/check_layers.py [ROOT]

A folder of weft/ may include only the folders that its weft_module() lists, each in a lower band.
The lists are the ones CMake links by: DEPS for all its files, TORCH_DEPS for its TORCH_SOURCES and
their headers. Each listed folder is included by some file. Folders inside an area include each other without
a cycle (tools/scan/include_graph.py). Only cli's strings name flags (tools/scan/flag_names.py). Headers include no torch/torch.h and have no `using namespace`.
Prints file:line for each finding; exits with 1 if there is one.
"""

import dataclasses
import pathlib
import re
import sys

from scan import flag_names, include_graph

BANDS = {
    "core": 0,
    "shard": 1, "cuda": 1,
    "dist": 2, "text": 2,
    "ops": 3, "quant": 3, "grammar": 3,
    "nn": 4, "io": 4,
    "models": 5,
    "generate": 6, "train": 6,
    "serve": 7,
    "cli": 8,
}
KEYWORDS = {"NAME", "DEPS", "TORCH", "TORCH_SOURCES", "TORCH_DEPS", "PLAIN_SOURCES", "LEAVE_OUT"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


@dataclasses.dataclass
class Module:
    name: str
    place: str
    deps: list
    torch_deps: list
    torch_stems: set

    def allowed(self, path):
        extra = self.torch_deps if path.with_suffix("").name in self.torch_stems else []
        return set(self.deps) | set(extra)


def read_module(root, folder):
    path = root / "weft" / folder / "CMakeLists.txt"
    if not path.exists():
        return None
    text = re.sub(r"#[^\n]*", "", path.read_text())
    call = re.search(r"weft_module\(([^)]*)\)", text)
    if call is None:
        return None
    values, keyword = {}, None
    for word in call.group(1).split():
        if word in KEYWORDS:
            keyword = word
            values[keyword] = []
        else:
            values[keyword].append(word)
    place = f"{path.relative_to(root)}:{text.count(chr(10), 0, call.start()) + 1}"
    stems = {pathlib.Path(source).stem for source in values.get("TORCH_SOURCES", [])}
    return Module(values["NAME"][0], place, values.get("DEPS", []), values.get("TORCH_DEPS", []),
                  stems)


def check_module(module, folder):
    if module.name != folder:
        yield f"{module.place}: module {module.name} lies in folder {folder}; give both one name"
    if folder not in BANDS:
        yield f"{module.place}: folder {folder} has no band; add it to tools/check_layers.py"
        return
    for dep in module.deps + module.torch_deps:
        if dep not in BANDS:
            yield f"{module.place}: {folder} lists {dep}, which is no folder of weft/"
        elif BANDS[dep] >= BANDS[folder]:
            yield (f"{module.place}: {folder} (band {BANDS[folder]}) lists {dep} "
                   f"(band {BANDS[dep]}); include only from a lower band")


def check_include(module, folder, path, quote, name):
    if path.suffix == ".h" and name == "torch/torch.h":
        return "a header includes torch/torch.h (15 s per file); include the ATen header it needs"
    if not name.startswith("weft/"):
        is_bare = quote == '"' and name.endswith(".h")
        return f'"{name}" is no path from the root; write "weft/{folder}/…"' if is_bare else None
    target = name.split("/")[1]
    # The headers of version and commit are written by CMake and lie below all folders.
    if target == folder or name in ("weft/version.h", "weft/commit.h"):
        return None
    if target not in module.allowed(path):
        return f"{folder} includes {name}, but its weft_module() does not list {target}"
    if BANDS.get(target, 99) >= BANDS.get(folder, -1):
        return f"{folder} includes {name}, which is not in a lower band"
    return None


def check_file(root, module, folder, path):
    for number, line in enumerate((root / path).read_text().splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            problem = check_include(module, folder, path, *found.groups())
            if problem:
                yield f"{path}:{number}: {problem}"
        elif path.suffix == ".h" and re.match(r"\s*using\s+namespace\b", line):
            yield f"{path}:{number}: `using namespace` in a header; name what you use"


def check_folder(root, folder):
    paths = [path.relative_to(root) for path in sorted((root / "weft" / folder).rglob("*"))
             if path.suffix in (".h", ".cpp", ".cu")]
    module = read_module(root, folder)
    if module is None:
        if paths:
            yield f"weft/{folder}/CMakeLists.txt:1: no weft_module() for the files of this folder"
        return
    yield from check_module(module, folder)
    for path in paths:
        yield from check_file(root, module, folder, path)
        if folder != "cli":
            yield from flag_names.file_findings(path, (root / path).read_text())
    yield from include_graph.cycle_findings(root, folder)
    yield from include_graph.unused_findings(root, module)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    folders = sorted(path.name for path in (root / "weft").iterdir() if path.is_dir())
    findings = [text for folder in folders for text in check_folder(root, folder)]
    for text in findings:
        print(text)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
