#!/bin/bash
# Trains under torchrun, which starts the ranks again after a fault; run it on each node with its number:
#   NODES=2 NODE=0 FIRST=node0 WEFT_JOB_KEY_FILE=~/job.key deploy/torchrun.sh CONFIG.toml
# All nodes need the same key, e.g. in a file that only you can read: openssl rand -hex 32 > ~/job.key
# again.sh starts a torchrun again that has ended because another node's is gone.
set -euo pipefail
: "${NODES:?how many nodes}" "${NODE:?which of them this is, from 0}" "${FIRST:?address of node 0}"
exec "$(dirname "$0")/again.sh" torchrun --no-python --nnodes "$NODES" --node-rank "$NODE" --master-addr "$FIRST" \
  --master-port 29500 --nproc-per-node "${RANKS_PER_NODE:-1}" --max-restarts "${MAX_RESTARTS:-100}" \
  weft train "$1" --resume=auto
