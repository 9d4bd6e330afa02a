#!/usr/bin/env bash
# PPO-MR: by the sum of the rewards of all turns.
. "$(dirname "$0")/table.sh"
train mt_ppo --recipe mt_ppo_sokoban "${sokoban[@]}" --reward merged
evaluate
