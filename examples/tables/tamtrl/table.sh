# TAMTRL, Tables 1 to 3. The numbers are those of 6.1 and Table A1.
MODEL=${MODEL:-Qwen/Qwen3-0.6B}
. "$(dirname "$0")/../common.sh"

# Without thoughts; CHAT_ARGS={} for a chat template that has no such argument.
reading=(--chat-args "${CHAT_ARGS:-enable_thinking=false}" --env MemChunkQA-v0
  --env-args chunk_size=5000 max_memory=1024 max_answer=1024 "${template[@]}")
columns=(hotpotqa ruler-qa niah 2wikimqa musique narrativeqa qasper)

# The questions that every row trains on.
build_training() {
  build train hotpotqa --source "$RAW/hotpot_train_v1.1.json" --documents 100 --num-tasks 25600
}

evaluate() {
  build hotpotqa hotpotqa --source "$RAW/hotpot_dev_distractor_v1.json" --documents 100 --num-tasks 128
  build ruler-qa hotpotqa --source "$RAW/hotpot_dev_distractor_v1.json" --tokens 8192 --num-tasks 500
  build niah ruler --kind niah_multikey_1 --tokens 8192 --num-tasks 500
  for column in 2wikimqa musique narrativeqa qasper; do
    build "$column" longbench --source "$RAW/longbench/$column.jsonl"
  done
  for column in "${columns[@]}"; do
    play "$column" "${reading[@]}" tasks="$DATA/$column" --samples 4 --temperature 1 --top-p 0.7
  done
  print_row
}
