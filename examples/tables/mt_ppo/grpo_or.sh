#!/usr/bin/env bash
# GRPO-OR (Search-R1): the checkpoint that its authors publish.
MODEL=${MODEL:-PeterJinGo/SearchR1-nq_hotpotqa_train-qwen2.5-7b-em-grpo}
. "$(dirname "$0")/table.sh"
evaluate
