#!/usr/bin/env bash
# MT-GRPO: each turn has an advantage of its own.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe mt_grpo_tool --env-args tasks="$DATA/train" "${search[@]}"
evaluate
