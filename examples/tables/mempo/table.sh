# MemPO, the table of 4.4 and those of A.1, local search. The numbers are those of 5.1 to 5.4 and A.1.
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
  build train multi --source "$DATA/hotpotqa_train" "$DATA/nq_train" --objectives 2 \
  --num-tasks 10000 --singles 10000
}

# The episodes of a stronger model, which its right ones are cloned from.
record_traces() {
  record "$RUNS/traces" "${TEACHER:?is a stronger model, such as openai:https://api.openai.com/v1}" \
    "${search[@]}" tasks="$DATA/train" memory_mode=rewrite --max-new-tokens 2048
}

# evaluate ENV_ARGS…: with SINGLE=1 the tables of A.1 with one question a task, otherwise those with several.
evaluate() {
  build hotpotqa hotpotqa --source "$RAW/hotpot_dev_distractor_v1.json"
  if [ -n "${SINGLE-}" ]; then
    evaluate_single "$@"
    return
  fi
  build nq nq --source "$RAW/nq/test.jsonl"
  build multi2 multi --source "$DATA/hotpotqa" "$DATA/nq" --objectives 2 --num-tasks 1000
  for objectives in 4 6 8 10; do
    build "multi$objectives" multi --source "$DATA/hotpotqa" --objectives "$objectives" --num-tasks 250
  done
  for objectives in 2 4 6 8 10; do
    play "multi$objectives" "${search[@]}" tasks="$DATA/multi$objectives" "$@" --temperature 0 \
    --max-new-tokens 2048
  done
  print_row mempo mempo_tokens
}

# evaluate_single ENV_ARGS…: 1,000 questions of each set, and all 125 of Bamboogle.
evaluate_single() {
  for column in nq popqa triviaqa bamboogle; do
    build "$column" "$column" --source "$RAW/$column/test.jsonl"
  done
  build 2wiki 2wiki --source "$RAW/2wiki/dev.json"
  build musique musique --source "$RAW/musique_ans_v1.0_dev.jsonl"
  for column in 2wiki hotpotqa musique nq popqa triviaqa; do
    build "${column}_1000" mix --source "$DATA/$column" --num-tasks 1000
  done
  for column in 2wiki bamboogle hotpotqa musique nq popqa triviaqa; do
    local tasks=$DATA/${column}_1000
    [ "$column" != bamboogle ] || tasks=$DATA/bamboogle
    play "$column" "${search[@]}" tasks="$tasks" "$@" --temperature 0 --max-new-tokens 2048
  done
  print_row mempo_multi_hop mempo_single_hop
}
