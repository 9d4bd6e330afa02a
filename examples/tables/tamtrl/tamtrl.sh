#!/usr/bin/env bash
# TAMTRL: each memory is paid by what a teacher who reads the evidence would have written.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe tamtrl_reading "${reading[@]}" tasks="$DATA/train"
evaluate
