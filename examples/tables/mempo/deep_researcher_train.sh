#!/usr/bin/env bash
# DeepResearcher, trained on the questions of NQ and HotpotQA.
MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
. "$(dirname "$0")/table.sh"
build_sources
build mix mix --source "$DATA/hotpotqa_train" "$DATA/nq_train"
train grpo --recipe deep_researcher_search \
    --env-args tasks="$DATA/mix" retriever="$RETRIEVER" "${template[@]}"
evaluate form=deep_researcher k=10 max_information=2000
