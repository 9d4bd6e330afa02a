#!/usr/bin/env bash
# GRPO-OR: by the outcome alone.
. "$(dirname "$0")/table.sh"
train grpo "${sokoban[@]}" rewards=mt_ppo --reward outcome --steps 300 --max-model-len 4096
evaluate
