#!/usr/bin/env bash
# MEM1, trained by GRPO in place of PPO.
. "$(dirname "$0")/table.sh"
build_training
train grpo --recipe mempo_search --env-args tasks="$DATA/train" retriever="$RETRIEVER" memory_mode=mem1 \
  "${template[@]}" --reward outcome
evaluate memory_mode=mem1
