# MT-GRPO, Table 2, which is Table 6 of MT-PPO.
MODEL=${MODEL:-Qwen/Qwen2.5-7B} ENGINE=${ENGINE-verl}
. "$(dirname "$0")/../common.sh"
: "${RETRIEVER:?is the address of a search server, such as http://127.0.0.1:8000}"

search=(retriever="$RETRIEVER" k=1 "${template[@]}")

build_training() {
  build train triviaqa --source "$RAW/triviaqa/train.jsonl"
}

evaluate() {
  build triviaqa triviaqa --source "$RAW/triviaqa/dev.jsonl"
  play triviaqa --env MemToolQA-v0 --env-args tasks="$DATA/triviaqa" "${search[@]}" --temperature 1
  print_row
}
