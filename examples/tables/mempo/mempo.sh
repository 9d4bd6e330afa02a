#!/usr/bin/env bash
# MemPO: first cloned from a stronger model, then paid for its memories.
. "$(dirname "$0")/table.sh"
build_training
record_traces
train sft --recipe mempo_sft --teacher "$RUNS/traces/episodes.jsonl"
train grpo --recipe mempo_search --env-args tasks="$DATA/train" retriever="$RETRIEVER" "${template[@]}"
evaluate memory_mode=rewrite
