#!/usr/bin/env bash
# GRPO-OR (Search-R1), trained with the numbers of Search-R1's script v0.2.
. "$(dirname "$0")/table.sh"
build_training
train grpo "${search[@]}" tasks="$DATA/train" --reward outcome --groups 512 --group-size 5 --num-envs 320 \
  --minibatches 10 --steps 1005 --lr 1e-6 --lr-warmup 0.285 --kl-coef 0.001 --entropy-coef 0.001 \
  --max-new-tokens 500
evaluate
