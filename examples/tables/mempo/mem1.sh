#!/usr/bin/env bash
# MEM1: the checkpoint that its authors publish.
MODEL=${MODEL:-Mem-Lab/Qwen2.5-7B-RL-RAG-Q2-EM-Release}
. "$(dirname "$0")/table.sh"
evaluate memory_mode=mem1
