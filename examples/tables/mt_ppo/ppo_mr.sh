#!/usr/bin/env bash
# PPO-MR (Search-R1): by the sum of Search-R1's rewards.
. "$(dirname "$0")/table.sh"
build_training
train mt_ppo --recipe mt_ppo_search "${search[@]}" tasks="$DATA/train" --methods SearchR1 --reward merged
evaluate
