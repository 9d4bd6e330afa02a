#!/usr/bin/env bash
# MT-PPO: each turn is paid.
. "$(dirname "$0")/table.sh"
build_training
train mt_ppo --recipe mt_ppo_search "${search[@]}" tasks="$DATA/train"
evaluate
