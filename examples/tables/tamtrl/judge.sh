#!/usr/bin/env bash
# LLM-judge: Qwen3-8B behind JUDGE, the address of a server, scores every turn.
. "$(dirname "$0")/table.sh"
: "${JUDGE:?is the address of a server with the judge, such as http://127.0.0.1:8000/v1}"
build_training
train grpo --recipe tamtrl_reading "${reading[@]}" tasks="$DATA/train" --reward turn-pool \
  --methods Judge url="$JUDGE" model="${JUDGE_MODEL:-Qwen/Qwen3-8B}" rubric=general outcome=multiply \
  chat_args='{"enable_thinking": false}' "${judge_template[@]}"
evaluate
