#!/usr/bin/env bash
# GRPO (w/o <mem>): cloned from the stronger model's episodes without their memories, then trained
# without one.
. "$(dirname "$0")/table.sh"
build_training
record_traces
record "$RUNS/traces-react" "replay:$RUNS/traces" "${search[@]}" tasks="$DATA/train" memory_mode=react
train sft --recipe mempo_sft --env-args memory_mode=react --teacher "$RUNS/traces-react/episodes.jsonl"
train grpo --recipe mempo_search --env-args tasks="$DATA/train" retriever="$RETRIEVER" memory_mode=react \
  "${template[@]}" --reward outcome --methods FormatGate improper=0.0 partial=false
evaluate memory_mode=react
