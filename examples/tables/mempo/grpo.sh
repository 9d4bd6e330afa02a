#!/usr/bin/env bash
# GRPO (w/o <mem>): without a memory.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe mempo_search --env-args tasks="$DATA/train" retriever="$RETRIEVER" memory_mode=react \
  "${template[@]}" --reward outcome
evaluate memory_mode=react
