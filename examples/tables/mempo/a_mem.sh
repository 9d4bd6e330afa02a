#!/usr/bin/env bash
# A-MEM, without training.
MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
. "$(dirname "$0")/table.sh"
evaluate memory_mode=a_mem
