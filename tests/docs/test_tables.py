"""docs/tables.md: every row of a paper's table runs, from official file to cell, with small numbers."""

import itertools
import json
import re
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chat_stub import ChatStub
from page_command import parse
from table_rows import ADDRESSES, ROOT, SCRIPTS, commands, each_script
from tiny_model import save_tiny_model

from memenvs.commands import main

EMPTY = {"CorpusQA"}
"""Columns that stay empty; the page says why."""

NUMBERS = {
    **{"--num-tasks": 2, "--documents": 4, "--tokens": 200, "--holdout": 2, "--singles": 2, "--samples": 2},
    **{"chunk_size": 120, "max_memory": 16, "max_turns": 2, "--max-new-tokens": 4},
}
"""The most that a flag or an argument of an environment may say."""
PLAY = "--max-new-tokens 4 --num-envs 2 --save-every 1 --track"
STEP = f"{PLAY} --steps 2 --groups 1 --group-size 2 --minibatches 1 --epochs 1 --eval-episodes 1"
TRAINED = {
    "train grpo": f"{STEP} --dynamic-sampling 0",
    "train mt_ppo": STEP,
    "train distill": STEP,
    "train sft": f"{PLAY} --episodes 4 --epochs 1 --learn-from all",  # a random model is never right
    "train prm": "--epochs 1 --track",
}
"""What is added to the flags of a learner."""


def test_every_row_has_a_script_and_every_script_a_row():
    page = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| row \| script \| status \|\n.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    linked = [re.findall(r"\]\(\.\./(\S+\.sh)\)", row) for table in tables for row in table.splitlines()]
    assert all(linked)
    assert sorted(itertools.chain(*linked)) == [file.relative_to(ROOT).as_posix() for file in SCRIPTS]


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """A folder of tiny files in the official forms: what is the code of thing i? It is 7 i."""
    folder = tmp_path_factory.mktemp("raw")

    def write(name, records):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        lines = (json.dumps(record) + "\n" for record in records)
        path.write_text("".join(lines) if path.suffix == ".jsonl" else json.dumps(records))

    numbers = range(1, 13)
    asked = [{"question": f"What is the code of Thing {i}?", "answer": f"{7 * i}"} for i in numbers]
    texts = [f"Thing {i} has the code {7 * i}." for i in numbers]
    paragraphs = [
        [[f"Thing {k}", [texts[k - 1]]] for k in (i, i % 12 + 1, (i + 1) % 12 + 1)] for i in numbers
    ]
    hotpot = [
        {"_id": f"h{i}", **question, "type": "bridge", "level": "easy", "context": context}
        | {"supporting_facts": [[f"Thing {i}", 0]]}
        for i, question, context in zip(numbers, asked, paragraphs, strict=True)
    ]
    write("hotpot_train_v1.1.json", hotpot)
    write("hotpot_dev_distractor_v1.json", hotpot)
    ids = {"entity_ids": "Q1", "evidences_id": [], "answer_id": "Q2"}
    write("2wiki/dev.json", [{**record, **ids, "evidences": [["it", "code", "7"]]} for record in hotpot])
    for split in ("train", "dev"):
        write(
            f"musique_ans_v1.0_{split}.jsonl",
            [
                {"id": f"2hop__{i}", **question, "answer_aliases": [], "answerable": True}
                | {
                    "paragraphs": [
                        {"idx": k, "title": title, "paragraph_text": lines[0], "is_supporting": k == 0}
                        for k, (title, lines) in enumerate(context)
                    ],
                    "question_decomposition": [
                        {"id": 1, "question": "code", "answer": question["answer"]}
                        | {"paragraph_support_idx": 0}
                    ],
                }
                for i, question, context in zip(numbers, asked, paragraphs, strict=True)
            ],
        )
    for name in ("nq", "triviaqa", "popqa"):
        for split in ("train", "dev", "test"):
            write(
                f"{name}/{split}.jsonl",
                [
                    {"id": f"{split}_{i}", "question": f"{name}: {question['question']}"}
                    | {"golden_answers": [question["answer"]], "metadata": {}}
                    for i, question in zip(numbers, asked, strict=True)
                ],
            )
    for name in ("2wikimqa", "musique", "narrativeqa", "qasper"):
        record = {"input": asked[0]["question"], "context": texts[0], "answers": ["7"], "length": 6}
        record |= {"dataset": name, "language": "en", "all_classes": None, "_id": "8f2a"}
        write(f"longbench/{name}.jsonl", [record])
    squad = [
        {"id": f"s{i}", "question": question["question"], "is_impossible": False}
        | {"answers": [{"text": question["answer"], "answer_start": text.index(question["answer"])}]}
        for i, question, text in zip(numbers, asked, texts, strict=True)
    ]
    articles = [
        {"title": f"Thing {i}", "paragraphs": [{"context": text, "qas": [entry]}]}
        for i, text, entry in zip(numbers, texts, squad, strict=True)
    ]
    write("train-v2.0.json", {"version": "v2.0", "data": articles})
    records = json.loads((ROOT / "tests" / "build" / "official_records.json").read_text(encoding="utf-8"))
    write("longmemeval_s_cleaned.json", [records["longmemeval"]])
    pq.write_table(pa.Table.from_pylist([records["mrcr"]] * 2), folder / "8needle.parquet")
    write("corpus.jsonl", [{"id": f"{i}", "contents": f'"Thing {i}"\n{texts[i - 1]}'} for i in numbers])
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", window=2048)


@pytest.fixture(scope="module")
def server():
    """The teacher, who is right by half, and the judge."""

    def reply(fields):
        text = fields["messages"][-1]["content"]
        if turns := re.search(r"Grade each of the (\d+) turns", text):
            return 200, json.dumps({"scores": [0.5] * int(turns[1])})
        if "<score>" in text:
            return 200, "<reasoning>It is the code.</reasoning>\n<score>1</score>"
        things = [int(number) for number in re.findall(r"the code of Thing (\d+)\?", text)]
        answer = "; ".join(str(7 * i if fields["seed"] % 2 else i) for i in things)
        if "<search>" in text:
            return 200, f"<mem>{answer}</mem><think>That is it.</think><answer>{answer}</answer>"
        return 200, f"\\boxed{{{answer}}}"

    with ChatStub(reply) as stub:
        yield stub.url


def scaled(words):
    """The words of a command with numbers that a test has time for."""
    for k, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals and name in NUMBERS:
            words[k] = f"{name}={min(int(value), NUMBERS[name])}"
        elif word in NUMBERS:
            words[k + 1] = str(min(int(words[k + 1]), NUMBERS[word]))
    command = " ".join(words[:2])
    if command == "evaluate run":
        kind, _, _ = words[words.index("--policy") + 1].partition(":")
        words += ["--max-new-tokens", "4"] * (kind != "replay" and "--max-new-tokens" not in words)
        words += ["--task", "0"] * (kind == "hf")
    return [*words, *TRAINED.get(command, "").split()]


@each_script
def test_a_row_runs_from_the_official_file_to_its_cell(
    script, official, model, server, tmp_path, tmp_path_factory, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    variables = {
        "RAW": official,
        "DATA": tmp_path_factory.getbasetemp() / "sets" / script.parent.name,
        "MODEL": model,
        "ENGINE": "",
        "RETRIEVER": f"lexical:{official / 'corpus.jsonl'}",
        "JUDGE": server,
        "TEACHER": f"openai:{server}",
        "TEACHER_MODEL": model,
        "CHAT_ARGS": "{}",
    }
    for words in commands(script, **variables):
        capsys.readouterr()
        status, said = main(scaled(words)), capsys.readouterr()
        assert status == 0, f"{shlex.join(words)}\n{said.err}"
    lines = [line[2:-2] for line in said.out.splitlines() if line.startswith("| ")]
    head, *rows = ([cell.strip() for cell in line.split(" | ")] for line in lines)
    cells = dict(zip(head, next(row for row in rows if row[0] == script.stem), strict=True))
    assert {title for title, cell in cells.items() if not cell} <= EMPTY


@each_script
def test_every_episode_of_a_row_s_environment_takes_another_prompt(script):
    for words in commands(script, TEMPLATE="prompt.txt", **ADDRESSES):
        plays = " ".join(words[:2]) in ("evaluate run", "train grpo", "train mt_ppo")
        if plays and "--merge" not in words:
            assert "template=prompt.txt" in words


@each_script
def test_a_policy_of_a_user_is_evaluated_and_nothing_is_trained(script):
    made = commands(script, POLICY="openai:http://127.0.0.1:8000", **ADDRESSES)
    assert not any(words[0] == "train" for words in made)
    assert not any(words[0] == "build" and words[-1].endswith("train") for words in made)
    played = [words for words in made if words[:2] == ["evaluate", "run"]]
    assert {words[words.index("--policy") + 1] for words in played} == {"openai:http://127.0.0.1:8000"}


@each_script
def test_a_row_trains_the_paper_s_model_with_flags_that_there_are(script, monkeypatch):
    for words in commands(script, **ADDRESSES):
        if "--merge" not in words:  # the step is known when verl has ended
            parse(shlex.join(["memenvs", *words]), monkeypatch)


@pytest.mark.parametrize("script", [file for file in SCRIPTS if file.parent.name == "tamtrl"])
def test_verl_gets_only_what_it_trains(script):
    for words in commands(script, ENGINE="verl", **ADDRESSES):
        if "--engine" in words:
            assert words[1] in ("grpo", "mt_ppo", "sft")
            assert "tamtrl_star" not in words  # a model that is its own teacher
