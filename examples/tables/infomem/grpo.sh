#!/usr/bin/env bash
# Outcome-only GRPO.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe infomem_reading "${reading[@]}" tasks="$DATA/train" \
    --eval-env-args tasks="$DATA/train-holdout" \
  --reward outcome --reward-args "{}"
evaluate
