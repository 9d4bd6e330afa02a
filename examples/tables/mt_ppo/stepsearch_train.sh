#!/usr/bin/env bash
# PPO (StepSearch), trained on MuSiQue, which names its evidence.
. "$(dirname "$0")/table.sh"
build musique_train musique --source "$RAW/musique_ans_v1.0_train.jsonl"
train mt_ppo --recipe mt_ppo_search "${search[@]}" tasks="$DATA/musique_train" metric=f1 --methods StepSearch
evaluate
