#!/bin/bash
# Runs a program on several hosts that ssh reaches without a password: deploy/hosts.sh node0,node1 weft generate MODEL -p Hi
# weft and the current folder must have the same paths on all of them.
set -euo pipefail
hosts=$1
shift
exec weft launch -n "${RANKS_PER_NODE:-1}" --hosts "$hosts" -- "$@"
