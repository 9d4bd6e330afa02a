#!/usr/bin/env bash
# GRPO-MR: by the sum of the rewards of all turns.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe mt_grpo_tool --env-args tasks="$DATA/train" "${search[@]}" --reward merged
evaluate
