#!/usr/bin/env bash
# TAMTRL with global-reward (Table 3): the teacher reads all evidence at every turn.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe tamtrl_reading "${reading[@]}" tasks="$DATA/train" --reward-args view=global
evaluate
