#!/usr/bin/env bash
# PPO-OR: by the outcome alone.
. "$(dirname "$0")/table.sh"
train mt_ppo --recipe mt_ppo_sokoban "${sokoban[@]}" --reward outcome
evaluate
