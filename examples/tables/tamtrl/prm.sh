#!/usr/bin/env bash
# PRM: a process reward model, learned from episodes of Qwen3-1.7B, scores every turn.
. "$(dirname "$0")/table.sh"
build_training
memenvs evaluate run "${reading[@]}" tasks="$DATA/train" --policy "${TEACHER:-hf:Qwen/Qwen3-1.7B}" --samples 8 \
  --temperature 1 --out "$RUNS/prm/rollouts"
memenvs train prm --model "$MODEL" --episodes "$RUNS/prm/rollouts/episodes.jsonl" --out "$RUNS/prm/prm" --resume
train grpo --recipe tamtrl_reading "${reading[@]}" tasks="$DATA/train" --reward turn-pool --methods PRM model="$RUNS/prm/prm/last"
evaluate
