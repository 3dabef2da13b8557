#!/usr/bin/env bash
# Runs clang-tidy as .clang-tidy says, on two files at once: tools/tidy.sh [--all]
#
# A file without libtorch's headers takes 1 to 5 s, one with them 11 to 60 s. Of the former those are
# checked that changed in the last RECENT commits or include a header that did; of the latter those that
# changed against origin/main (on main itself: in the last commit), at most MAX_CHANGED of them. Without
# so many commits, all count as changed. --all checks every file.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BUILD=build-tidy MAX_CHANGED=16 RECENT=30
readonly LIST_FILES='
import json, os, sys
for entry in json.load(open(sys.argv[1])):
    name = os.path.relpath(entry["file"], sys.argv[2])
    # clang 14 does not know every CPU feature that g++ 12 does.
    if name.startswith("weft/") and not name.startswith("weft/quant/kernels/avx"):
        print("torch" if "cmake_pch" in entry["command"] else "plain", name)
'

changed_since() { git diff --name-only --diff-filter=d "$1" -- weft; }

# commit_or_all COMMIT: the commit, or what has no file where the history is shorter.
commit_or_all() { git rev-parse -q --verify "$1^{commit}" || git hash-object -t tree /dev/null; }

changed_files() {
  local base
  base=$(commit_or_all HEAD~1)
  if git rev-parse -q --verify origin/main >/dev/null &&
    [[ $(git merge-base HEAD origin/main) != $(git rev-parse HEAD) ]]; then
    base=origin/main...
  fi
  changed_since "$base"
}

# What changed lately, and what includes a header that did.
recent_files() {
  local changed headers
  changed=$(changed_since "$(commit_or_all "HEAD~$RECENT")")
  headers=$(grep '[.]h$' <<<"$changed" | sed 's/.*/#include "&"/') || true
  echo "$changed"
  [[ -z $headers ]] || grep -rlF --include='*.cpp' -f <(echo "$headers") weft || true
}

# The precompiled header is built by clang, so that clang-tidy can read it.
cmake -S . -B $BUILD -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++ \
  -DWEFT_TESTS=OFF -DWEFT_BENCH=OFF -DWEFT_UNITY=OFF >/dev/null
cmake --build $BUILD --target weft_pch -j 2 >/dev/null
listed=$(python3 -c "$LIST_FILES" $BUILD/compile_commands.json "$PWD")
mapfile -t plain < <(sed -n 's/^plain //p' <<<"$listed")
mapfile -t torch < <(sed -n 's/^torch //p' <<<"$listed")
num_torch=${#torch[@]} num_plain=${#plain[@]}
if [[ ${1:-} != --all ]]; then
  mapfile -t plain < <(printf '%s\n' "${plain[@]}" | grep -Fxf <(recent_files))
  mapfile -t torch < <(printf '%s\n' "${torch[@]}" | grep -Fxf <(changed_files) | head -n $MAX_CHANGED)
fi
echo "tidy: ${#plain[@]} of $num_plain files without libtorch, ${#torch[@]} of $num_torch with it"
((${#plain[@]} + ${#torch[@]} > 0)) || exit 0
printf '%s\0' "${plain[@]}" "${torch[@]}" |
  xargs -0 -r -n 1 -P 2 clang-tidy -p $BUILD --quiet 2> >(grep -v 'warnings\? generated' >&2)
