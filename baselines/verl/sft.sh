#!/usr/bin/env bash
# More settings of verl may follow the command.
set -e
${machines}cd $folder
export TENSORBOARD_DIR=$out
attention=()
python -c 'import flash_attn' 2> /dev/null || $fallback
torchrun $meeting --nnodes=$nodes --nproc-per-node=$gpus -m verl.trainer.sft_trainer \
$settings  "$${attention[@]}" "$$@"
