#!/usr/bin/env bash
# ReMemR1, which recalls what it read, with the shared numbers of Table 4.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe memagent_reading "${reading[@]}" tasks="$DATA/train" memory_mode=callback \
  --eval-env-args tasks="$DATA/train-holdout" --reward rememr1 --reward-args bounded=false --group-size 8 \
  --groups 256 --minibatches 4 --lr-warmup 2 --steps 120 --eval-every 2 --eval-temperature 0.7 --save-every 2
temperature=0.7
evaluate memory_mode=callback
