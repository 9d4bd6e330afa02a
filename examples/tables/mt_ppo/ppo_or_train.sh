#!/usr/bin/env bash
# PPO-OR (Search-R1), trained by the outcome alone.
. "$(dirname "$0")/table.sh"
build_training
train mt_ppo --recipe mt_ppo_search "${search[@]}" tasks="$DATA/train" --reward outcome --methods "[]"
evaluate
