#!/usr/bin/env bash
# Runs clang-tidy as .clang-tidy says, on two files at once: tools/tidy.sh [--all]
#
# A file without libtorch's headers takes 1 to 3 s, one with them 11 to 60 s, so of the latter only
# those that changed against origin/main (on main itself: in the last commit) are checked, at most
# MAX_CHANGED of them. Without a commit before, all count as changed. --all checks every file.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BUILD=build-tidy MAX_CHANGED=16
readonly LIST_FILES='
import json, os, sys
for entry in json.load(open(sys.argv[1])):
    name = os.path.relpath(entry["file"], sys.argv[2])
    # clang 14 does not know every CPU feature that g++ 12 does.
    if name.startswith("weft/") and not name.startswith("weft/quant/kernels/avx"):
        print("torch" if "cmake_pch" in entry["command"] else "plain", name)
'

changed_files() {
  local base=HEAD~1
  git rev-parse -q --verify $base >/dev/null || base=$(git hash-object -t tree /dev/null)
  if git rev-parse -q --verify origin/main >/dev/null &&
    [[ $(git merge-base HEAD origin/main) != $(git rev-parse HEAD) ]]; then
    base=origin/main...
  fi
  git diff --name-only --diff-filter=d "$base" -- weft
}

# The precompiled header is built by clang, so that clang-tidy can read it.
cmake -S . -B $BUILD -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++ \
  -DWEFT_TESTS=OFF -DWEFT_BENCH=OFF -DWEFT_UNITY=OFF >/dev/null
cmake --build $BUILD --target weft_pch -j 2 >/dev/null
listed=$(python3 -c "$LIST_FILES" $BUILD/compile_commands.json "$PWD")
mapfile -t plain < <(sed -n 's/^plain //p' <<<"$listed")
mapfile -t torch < <(sed -n 's/^torch //p' <<<"$listed")
num_torch=${#torch[@]}
if [[ ${1:-} != --all ]]; then
  mapfile -t torch < <(printf '%s\n' "${torch[@]}" | grep -Fxf <(changed_files) | head -n $MAX_CHANGED)
fi
echo "tidy: ${#plain[@]} files without libtorch, ${#torch[@]} of $num_torch with it"
printf '%s\0' "${plain[@]}" "${torch[@]}" |
  xargs -0 -r -n 1 -P 2 clang-tidy -p $BUILD --quiet 2> >(grep -v 'warnings\? generated' >&2)
