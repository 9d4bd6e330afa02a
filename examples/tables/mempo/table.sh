# MemPO, the table of 4.4, local search. The numbers are those of 5.1 to 5.4.
MODEL=${MODEL:-Qwen/Qwen2.5-7B} ENGINE=${ENGINE-verl}
. "$(dirname "$0")/../common.sh"
: "${RETRIEVER:?is the address of a search server, such as http://127.0.0.1:8000}"

search=(--env MemSearchQA-v0 --env-args retriever="$RETRIEVER" max_turns=15 "${template[@]}")

build_sources() {
  build hotpotqa_train hotpotqa --source "$RAW/hotpot_train_v1.1.json"
  build nq_train nq --source "$RAW/nq/train.jsonl"
}

# Tasks of two questions, and of one.
build_training() {
  build_sources
  build train multi --source "$DATA/hotpotqa_train" "$DATA/nq_train" --objectives 2 --num-tasks 10000 --singles 10000
}

# The episodes of a stronger model, which its right ones are cloned from.
record_traces() {
  record "$RUNS/traces" "${TEACHER:?is a stronger model, such as openai:https://api.openai.com/v1}" \
    "${search[@]}" tasks="$DATA/train" memory_mode=rewrite --max-new-tokens 2048
}

# evaluate ENV_ARGS…
evaluate() {
  build hotpotqa hotpotqa --source "$RAW/hotpot_dev_distractor_v1.json"
  build nq nq --source "$RAW/nq/test.jsonl"
  build multi2 multi --source "$DATA/hotpotqa" "$DATA/nq" --objectives 2 --num-tasks 1000
  for objectives in 4 6 8 10; do
    build "multi$objectives" multi --source "$DATA/hotpotqa" --objectives "$objectives" --num-tasks 250
  done
  for objectives in 2 4 6 8 10; do
    play "multi$objectives" "${search[@]}" tasks="$DATA/multi$objectives" "$@" --temperature 0 --max-new-tokens 2048
  done
  print_row
}
