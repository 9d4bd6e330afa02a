#!/usr/bin/env bash
# PPO (OTC): a right answer with fewer calls is paid more.
. "$(dirname "$0")/table.sh"
build_training
train mt_ppo --recipe mt_ppo_search "${search[@]}" tasks="$DATA/train" --methods OTC smooth=1 --reward merged
evaluate
