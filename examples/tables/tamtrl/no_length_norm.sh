#!/usr/bin/env bash
# TAMTRL w/o l-norm (Table 2): without the division by the memory's length in eq. 4.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe tamtrl_reading "${reading[@]}" tasks="$DATA/train" --reward-args length_norm=false
evaluate
