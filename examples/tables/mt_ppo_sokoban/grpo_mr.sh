#!/usr/bin/env bash
# GRPO-MR: by the sum of the rewards of all turns.
. "$(dirname "$0")/table.sh"
train grpo "${sokoban[@]}" rewards=mt_ppo --reward merged --steps 300 --max-model-len 4096
evaluate
