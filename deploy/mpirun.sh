#!/bin/bash
# Runs a program under mpirun on several hosts: deploy/mpirun.sh 4 node0:2,node1:2 weft generate MODEL -p Hello
# The ranks learn from MPI where they meet, and their key; no address is needed.
set -euo pipefail
ranks=$1 hosts=$2
shift 2
exec mpirun -n "$ranks" --host "$hosts" "$@"
