#!/usr/bin/env bash
# InfoMem w/o r_gain normalization (Table 3): the bonus is not a z-score.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe infomem_reading "${reading[@]}" tasks="$DATA/train" \
    --eval-env-args tasks="$DATA/train-holdout" \
  --reward-args normalize=false
evaluate
