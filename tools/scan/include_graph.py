"""Which folders include which, and which of an area's declared dependencies none of its files use.

check_layers.py runs both checks. Nodes of the graph are the folders inside an area (weft/io/views). The
area's own folder is none of them, because it holds the area's face above its folders and what they
share below them; and neither are a folder and what lies inside it set against each other.
"""

import collections
import pathlib
import re

SUFFIXES = (".h", ".cpp", ".cu", ".inc")
INCLUDE = re.compile(r'^\s*#\s*include\s+"(weft/[^"]+)"', re.M)

# Includes between folders that close a cycle. No line may be added; one that is not needed any more is an
# error, too, so that the list only gets shorter.
OLD_CYCLES = {
    "dist/backends -> dist/hierarchical",
    "dist/backends -> dist/mpi",
    "dist/backends -> dist/nccl",
    "dist/backends -> dist/shm",
    "dist/rendezvous -> dist/launch",
    "io/views -> io/shard_info",
    "models/decoder -> models/passes",
    "models/load -> models/decoder",
    "nn/layers -> nn/linear",
    "nn/linear -> nn/parallel",
    "text/bpe -> text/tokenizer",
    "text/regex -> text/tokenizer",
}

# Dependencies that a weft_module() lists and none of its files includes. It only gets shorter as well.
OLD_UNUSED_DEPS = {
    "cli": {"shard", "ops"},
    "generate": {"shard", "ops", "quant", "io"},
    "train": {"ops"},
}


def sources(root, area):
    return [path for path in sorted((root / "weft" / area).rglob("*")) if path.suffix in SUFFIXES]


def included(path):
    return INCLUDE.findall(path.read_text())


def folder_edges(root, area):
    """(from, to) -> the first include that leads there, of folders inside `area`."""
    edges = {}
    for path in sources(root, area):
        here = path.relative_to(root / "weft").parent.as_posix()
        for name in included(path):
            there = pathlib.PurePath(name).parent.relative_to("weft").as_posix()
            inside = here.startswith(area + "/") and there.startswith(area + "/")
            nested = (here + "/").startswith(there + "/") or (there + "/").startswith(here + "/")
            if inside and not nested:
                edges.setdefault((here, there), f"{path.relative_to(root)} includes {name}")
    return edges


def reachable(edges, start):
    after = collections.defaultdict(set)
    for here, there in edges:
        after[here].add(there)
    found, waiting = set(), [start]
    while waiting:
        for folder in after[waiting.pop()] - found:
            found.add(folder)
            waiting.append(folder)
    return found


def closes_cycle(edges, edge):
    return edge[0] in reachable(edges, edge[1])


def cycle_findings(root, area):
    edges = folder_edges(root, area)
    old = {tuple(line.split(" -> ")) for line in OLD_CYCLES if line.startswith(area + "/")}
    allowed = {edge: text for edge, text in edges.items() if edge not in old}
    for edge, text in sorted(allowed.items()):
        if closes_cycle(allowed, edge):
            yield f"weft/{edge[0]}: {text}, which closes a cycle; move what both need below them"
    for edge in sorted(old):
        is_needed = edge in edges and closes_cycle({**allowed, edge: ""}, edge)
        if (root / "weft" / edge[0]).is_dir() and not is_needed:
            yield (f"weft/{edge[0]}: {' -> '.join(edge)} closes no cycle; remove it from OLD_CYCLES in "
                   "tools/scan/include_graph.py")


def unused_findings(root, module):
    """Of a check_layers.Module: DEPS and TORCH_DEPS that no file includes."""
    used = {name.split("/")[1] for path in sources(root, module.name) for name in included(path)}
    old = OLD_UNUSED_DEPS.get(module.name, set())
    listed = module.deps + module.torch_deps
    for dep in listed:
        if dep not in used and dep not in old:
            yield f"{module.place}: {module.name} lists {dep}, but no file of it includes that; remove it"
    for dep in sorted(old):
        if dep in used or dep not in listed:
            yield (f"{module.place}: {module.name}'s unused {dep} is used or gone; remove it from "
                   "OLD_UNUSED_DEPS in tools/scan/include_graph.py")
