#!/usr/bin/env bash
# GRPO-MR (Search-R1), with the numbers of Search-R1's script v0.3.
. "$(dirname "$0")/table.sh"
build_training
train grpo "${search[@]}" tasks="$DATA/train" --methods SearchR1 --reward merged --groups 512 --group-size 5 \
  --num-envs 320 --minibatches 10 --steps 1005 --lr 5e-7 --lr-warmup 0.285 --kl-coef 0.001 \
  --entropy-coef 0.001 --max-new-tokens 500
evaluate
