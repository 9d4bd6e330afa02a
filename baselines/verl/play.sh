#!/usr/bin/env bash
# On a cluster start Ray on every node first (ray start --head, ray start --address=…), and run
# this on the first one. More settings of verl may follow the command.
set -e
cd $folder
export VERL_USE_EXTERNAL_MODULES=memenvs.adapters.verl TENSORBOARD_DIR=$out
attention=()
python -c 'import flash_attn' 2> /dev/null || $fallback
python -m verl.trainer.main_ppo \
$settings  "$${attention[@]}" "$$@"
