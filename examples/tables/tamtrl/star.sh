#!/usr/bin/env bash
# STaR: on the model's own right episodes.
. "$(dirname "$0")/table.sh"
build_training
ENGINE= train sft --recipe tamtrl_star "${reading[@]}" tasks="$DATA/train"
evaluate
