#!/usr/bin/env bash
# InfoMem with QueryPMI (Table 3): the likelihood of the question in place of the answer's.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe infomem_reading "${reading[@]}" tasks="$DATA/train" \
    --eval-env-args tasks="$DATA/train-holdout" \
  --reward-args condition=query
evaluate
