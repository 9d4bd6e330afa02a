#!/usr/bin/env bash
# TAMTRL with plus-reward (Table 3): eq. 6 adds the outcome.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe tamtrl_reading "${reading[@]}" tasks="$DATA/train" --reward-args combine=plus
evaluate
