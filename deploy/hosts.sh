#!/bin/bash
# Runs a program on several hosts that ssh reaches without a password, and again after a fault:
#   deploy/hosts.sh node0,node1 weft train CONFIG.toml --resume=auto
# weft and the current folder must have the same paths on all of them.
set -euo pipefail
hosts=$1
shift
exec "$(dirname "$0")/again.sh" weft launch -n "${RANKS_PER_NODE:-1}" --hosts "$hosts" -- "$@"
