#!/usr/bin/env bash
# What can be checked without building, in seconds: format, layers, sizes, dead code, documentation, API pages, charts.
# Runs all of them and ends with 1 if one of them finds something.
set -euo pipefail
cd "$(dirname "$0")/.."

result=0
run() {
  echo "check: $1" >&2
  shift
  "$@" || result=1
}

check_format() {
  local lines shorter='s/^(\S+:[0-9]+):[0-9]+: .*clang-formatted.*/\1: format differs; run clang-format -i/p'
  lines=$(clang-format --dry-run "$@" 2>&1 | sed -nE "$shorter" | uniq)
  [[ -z $lines ]] || { echo "$lines" && return 1; }
}

mapfile -t sources < <(find weft tests bench cmake \( -name '*.h' -o -name '*.cpp' \) | sort)
run format check_format "${sources[@]}"
for name in layers sizes docs unused; do
  run "$name" python3 "tools/check_$name.py"
done
run "API pages" python3 tools/make_api_pages.py
run records python3 tools/records/draw_records.py --check
exit $result
