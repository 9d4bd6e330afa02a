# MT-PPO, Table 2. The numbers are those of 6.2 and D.1.3; evaluation is greedy, as Search-R1 asks.
MODEL=${MODEL:-Qwen/Qwen2.5-7B} ENGINE=${ENGINE-verl}
. "$(dirname "$0")/../common.sh"
: "${RETRIEVER:?is the address of a search server, such as http://127.0.0.1:8000}"

search=(--env MemSearchQA-v0
  --env-args retriever="$RETRIEVER" k=3 max_turns=3 max_information=500 "${template[@]}")

# The questions of NQ and HotpotQA, which all rows but StepSearch train on.
build_training() {
  build nq_train nq --source "$RAW/nq/train.jsonl"
  build hotpotqa_train hotpotqa --source "$RAW/hotpot_train_v1.1.json"
  build train mix --source "$DATA/nq_train" "$DATA/hotpotqa_train"
}

evaluate() {
  for column in nq triviaqa popqa; do
    build "$column" "$column" --source "$RAW/$column/test.jsonl"
  done
  build hotpotqa hotpotqa --source "$RAW/hotpot_dev_distractor_v1.json"
  build 2wiki 2wiki --source "$RAW/2wiki/dev.json"
  build musique musique --source "$RAW/musique_ans_v1.0_dev.jsonl"
  for column in nq triviaqa popqa hotpotqa 2wiki musique; do
    play "$column" "${search[@]}" tasks="$DATA/$column" --max-new-tokens 500 --temperature 0
  done
  print_row
}
