#!/usr/bin/env bash
# ReSearch, trained on MuSiQue as its authors do.
MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
. "$(dirname "$0")/table.sh"
build musique_train musique --source "$RAW/musique_ans_v1.0_train.jsonl"
train grpo --recipe research_search \
    --env-args tasks="$DATA/musique_train" retriever="$RETRIEVER" "${template[@]}"
evaluate form=research k=5 max_information=2000
