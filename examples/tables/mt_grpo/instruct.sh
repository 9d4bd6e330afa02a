#!/usr/bin/env bash
# Qwen2.5-7B-Instruct, without training.
MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
. "$(dirname "$0")/table.sh"
evaluate
