"""Which strings of the libraries name a flag of the program.

Whoever links weft has no flags: only weft/cli may say `--tp`. check_layers.py runs this.
"""

import re

STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
FLAG = re.compile(r"""(?:^"|[\s'"`(=])(--[a-z][a-z-]*)""")

# Flags of another program, which weft starts.
OTHERS = {"weft/dist/launch/mpi_places.cpp": {"--oversubscribe", "--bind-to", "--enable-recovery"}}

# Files that still name flags. No line may be added; one that is not needed any more is an error, too, so
# that the list only gets shorter.
OLD_FLAGS = {
    "weft/cuda/device.cpp": {"--device"},
    "weft/cuda/matrix.cpp": {"--device"},
    "weft/cuda/runtime.cpp": {"--ctx-size", "--device"},
    "weft/generate/engine.cpp": {"--ctx-size", "--speculate"},
    "weft/generate/options.cpp": {"--top-k"},
    "weft/generate/scoring/windows.cpp": {"--ctx-size"},
    "weft/models/convert/gguf_outputs.cpp": {"--dtype"},
    "weft/models/convert/export_output.cpp": {"--dtype"},
    "weft/models/passes/cuda/cuda_decoder.cpp": {"--device"},
    "weft/nn/attention/kv_cache.cpp": {"--ctx-size"},
    "weft/train/plan/mesh_search.cpp": {"--pipe", "--ranks"},
    "weft/train/trainer/run_start.cpp": {"--resume"},
}


def named_flags(line):
    if line.lstrip().startswith(("//", "#include")):
        return []
    return [flag for text in STRING.findall(line) for flag in FLAG.findall(text)]


def file_findings(path, text):
    """Of one file of a library: `path` below the root of the sources, and what it holds."""
    name = path.as_posix()
    known = OTHERS.get(name, set()) | OLD_FLAGS.get(name, set())
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        for flag in named_flags(line):
            found.add(flag)
            if flag not in known:
                yield f"{name}:{number}: names the flag {flag}; only weft/cli has flags: say what to change"
    for flag in sorted(known - found):
        yield f"{name}:1: does not name {flag}; remove it from tools/scan/flag_names.py"
