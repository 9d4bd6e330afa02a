#!/usr/bin/env bash
# MemAgent: GRPO by the outcome alone.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe tamtrl_reading "${reading[@]}" tasks="$DATA/train" --reward outcome \
    --reward-args scale=none
evaluate
