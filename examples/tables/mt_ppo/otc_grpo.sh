#!/usr/bin/env bash
# GRPO (OTC): a right answer with fewer calls is paid more.
. "$(dirname "$0")/table.sh"
build_training
train grpo "${search[@]}" tasks="$DATA/train" --methods OTC --reward merged --groups 64 --group-size 8 \
  --num-envs 512 --steps 500 --kl-coef 0.001 --max-new-tokens 500
evaluate
