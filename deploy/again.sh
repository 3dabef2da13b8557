#!/bin/bash
# Runs a command again until it succeeds, for launchers that do not do it themselves:
#   deploy/again.sh srun -N 2 weft train CONFIG.toml --resume=auto
# What another try cannot mend (2: impossible request, 3: wrong file) and what somebody asked for (a signal) ends it.
set -uo pipefail
tries=${TRIES:-100}
for ((i = 0; i < tries; ++i)); do
  "$@"
  status=$?
  case $status in 0 | 2 | 3 | 126 | 127 | 129 | 130) exit $status ;; esac
  echo "again.sh: status $status; starting it again" >&2
  sleep 1
done
exit $status
