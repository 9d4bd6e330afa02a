#!/usr/bin/env bash
# TAMTRL w/o mm-norm (Table 2): without eq. 5.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe tamtrl_reading "${reading[@]}" tasks="$DATA/train" --reward-args minmax=false
evaluate
