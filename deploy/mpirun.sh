#!/bin/bash
# Runs a program under mpirun on several hosts, and again after a fault:
#   deploy/mpirun.sh 4 node0:2,node1:2 weft train CONFIG.toml --resume=auto
# The ranks learn from MPI where they meet, and their key; no address is needed.
set -euo pipefail
ranks=$1 hosts=$2
shift 2
exec "$(dirname "$0")/again.sh" mpirun -n "$ranks" --host "$hosts" "$@"
