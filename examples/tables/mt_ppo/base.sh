#!/usr/bin/env bash
# Qwen2.5-7B-Base, without training.
. "$(dirname "$0")/table.sh"
evaluate
