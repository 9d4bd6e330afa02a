#!/usr/bin/env bash
# GRPO-OR: by the outcome alone.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe mt_grpo_tool --env-args tasks="$DATA/train" "${search[@]}" --reward outcome
evaluate
