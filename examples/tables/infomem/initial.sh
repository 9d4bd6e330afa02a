#!/usr/bin/env bash
# Qwen2.5-1.5B-Instruct, without training.
. "$(dirname "$0")/table.sh"
evaluate
