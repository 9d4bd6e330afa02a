#!/usr/bin/env bash
# SFT: on the right episodes of Qwen3-14B.
. "$(dirname "$0")/table.sh"
build_training
memenvs evaluate run "${reading[@]}" tasks="$DATA/train" --policy "${TEACHER:-hf:Qwen/Qwen3-14B}" --out "$RUNS/sft/traces"
train sft --recipe tamtrl_sft "${reading[@]}" --teacher "$RUNS/sft/traces/episodes.jsonl"
evaluate
