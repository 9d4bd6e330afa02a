#!/usr/bin/env bash
# InfoMem: the last memory is paid by how much likelier it makes the right answer.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe infomem_reading "${reading[@]}" tasks="$DATA/train" \
    --eval-env-args tasks="$DATA/train-holdout"
evaluate
