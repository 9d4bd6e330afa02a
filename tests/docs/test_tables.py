"""docs/tables.md: every row of a paper's table runs, from official file to cell, with small numbers."""

import gzip
import itertools
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chat_stub import ChatStub
from page_command import parse
from table_rows import ADDRESSES, ROOT, SCRIPTS, commands, each_script
from tiny_model import save_tiny_model

from memenvs.commands import main

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
    musique = []
    for i, question, context in zip(numbers, asked, paragraphs, strict=True):
        parts = [
            {"idx": k, "title": title, "paragraph_text": lines[0], "is_supporting": k == 0}
            for k, (title, lines) in enumerate(context)
        ]
        hop = {"id": 1, "question": "code", "answer": question["answer"], "paragraph_support_idx": 0}
        known = {"answer_aliases": [], "answerable": True, "question_decomposition": [hop]}
        musique.append({"id": f"2hop__{i}", **question, "paragraphs": parts, **known})
    for split in ("train", "dev"):
        write(f"musique_ans_v1.0_{split}.jsonl", musique)
    for name, split in itertools.product(("nq", "triviaqa", "popqa", "bamboogle"), ("train", "dev", "test")):
        records = [
            {"id": f"{split}_{i}", "question": f"{name}: {question['question']}"}
            | {"golden_answers": [question["answer"]], "metadata": {}}
            for i, question in zip(numbers, asked, strict=True)
        ]
        write(f"{name}/{split}.jsonl", records)
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
    documents = "\n\n".join(f"# Document {i}:\n{text}" for i, text in zip(numbers, texts, strict=True))
    said = {"system": "You read records.", "user": f"{documents}\n\nQuestion: {asked[0]['question']}"}
    prompt = [{"role": role, "content": text} for role, text in said.items()]
    corpusqa = {"id": "thing_0001", "prompt": prompt, "question": asked[0]["question"], "answer": ["7"]}
    write("128k_4domains.jsonl", [corpusqa])
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


@pytest.fixture
def play_row(official, model, server, tmp_path, tmp_path_factory, monkeypatch, capsys):
    """Run a script with small numbers, for the cells of its row, by title, in each table that it prints."""
    monkeypatch.chdir(tmp_path)

    def play(script, **variables):
        tables = []
        data = tmp_path_factory.getbasetemp() / "sets" / script.parent.name
        models = {"MODEL": model, "TEACHER_MODEL": model, "TEACHER": f"openai:{server}", "JUDGE": server}
        shared = {"RAW": official, "DATA": data, "ENGINE": "", "CHAT_ARGS": "{}", **models}
        shared["RETRIEVER"] = f"lexical:{official / 'corpus.jsonl'}"
        for words in commands(script, **{**shared, **variables}):
            capsys.readouterr()
            status, said = main(scaled(words)), capsys.readouterr()
            assert status == 0, f"{shlex.join(words)}\n{said.err}"
            if words[:2] == ["evaluate", "table"]:
                lines = [line[2:-2] for line in said.out.splitlines() if line.startswith("| ")]
                head, *rows = ([cell.strip() for cell in line.split(" | ")] for line in lines)
                (own,) = (row for row in rows if row[0] == script.stem)
                tables.append(dict(zip(head, own, strict=True)))
        return tables

    return play


@each_script
def test_a_row_runs_from_the_official_file_to_its_cell(script, play_row):
    for cells in play_row(script):
        assert all(cells.values())


@pytest.mark.slow
@pytest.mark.parametrize("row", ["infomem/infomem", "mempo/mempo", "mt_ppo/mt_ppo"])
def test_a_row_is_trained_and_evaluated_on_real_questions(row, play_row, official, real_data, tmp_path):
    raw = tmp_path / "raw"
    shutil.copytree(official, raw)
    for real, name in (("train_100", "train_v1.1"), ("dev_300", "dev_distractor_v1")):
        shutil.copy(real_data / "hotpotqa" / f"hotpot_{real}.json", raw / f"hotpot_{name}.json")
    musique = json.loads((real_data / "musique" / "musique_train_60.json").read_text(encoding="utf-8"))
    with gzip.open(real_data / "nq" / "nq_open_gold_1000.jsonl.gz", "rt", encoding="utf-8") as lines:
        asked = [json.loads(line) for line in lines]
    for split in ("train", "dev", "test"):
        questions = [
            {"id": f"{split}_{i}", "question": record["question"], "golden_answers": record["answers"]}
            for i, record in enumerate(asked)
        ]
        for name, records in ((f"musique_ans_v1.0_{split}", musique), (f"nq/{split}", questions)):
            text = "".join(json.dumps(record) + "\n" for record in records)
            (raw / f"{name}.jsonl").write_text(text, encoding="utf-8")
    wiki = real_data / "wiki" / "wiki_passages.jsonl.gz"
    script = ROOT / "examples" / "tables" / f"{row}.sh"
    for cells in play_row(script, RAW=raw, DATA=tmp_path / "sets", RETRIEVER=f"lexical:{wiki}"):
        assert all(cells.values())


def test_a_row_of_mempo_is_evaluated_on_single_questions_too(play_row, model):
    script = ROOT / "examples" / "tables" / "mempo" / "mempo.sh"
    multi_hop, single_hop = play_row(script, SINGLE=1, POLICY=f"hf:{model}")
    assert all(multi_hop.values())
    assert all(single_hop.values())
    assert [len(multi_hop), len(single_hop)] == [21, 17]  # four numbers of each set, and their means


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


@pytest.mark.parametrize("policy", ["lexical", "replay:runs/mine", "my_agents:play"])
@pytest.mark.parametrize("row", ["tamtrl/prm", "mempo/grpo", "infomem/rememr1", "mt_ppo/base"])
def test_a_policy_without_a_model_gets_no_options_of_one(row, policy, monkeypatch):
    script = ROOT / "examples" / "tables" / f"{row}.sh"
    variables = {**ADDRESSES, "TEACHER": policy, "SYSTEM_PROMPT": "be brief"}
    for words in commands(script, POLICY=policy, **variables) + commands(script, **variables):
        if words[:2] == ["evaluate", "run"] and policy in words:
            options = {word for word in words if word.startswith("--")}
            assert options <= {"--env", "--env-args", "--methods", "--samples", "--policy", "--out"}
            parse(shlex.join(["memenvs", *words]), monkeypatch)


def test_flags_of_a_row_s_trainings_and_evaluations_are_told_apart():
    flags = "--seed 3 sft: --lr 1e-5 grpo: --groups 4 evaluate: --workers 2".split()
    made = commands(ROOT / "examples" / "tables" / "mempo" / "mempo.sh", *flags, **ADDRESSES, ENGINE="")
    ends = {" ".join(words[:2]): words[-4:] for words in made}
    assert ends["train sft"] == ["--seed", "3", "--lr", "1e-5"]
    assert ends["train grpo"] == ["--seed", "3", "--groups", "4"]
    played = [words for words in made if words[:2] == ["evaluate", "run"] and "/eval/" in words[-1]]
    assert [words for words in made if "--workers" in words] == played


@pytest.mark.parametrize(("status", "columns"), [(1, 4), (2, 1)])
def test_a_row_goes_on_after_failed_episodes_and_ends_at_an_error(status, columns, tmp_path):
    """The status of `evaluate run` is 1 if an episode failed, and 2 if it could not be run."""
    command = tmp_path / "memenvs"
    command.write_text(f'#!/bin/sh\necho "$@"\n[ "$2" != run ] || exit {status}\n')
    command.chmod(0o755)
    environment = {**os.environ, **ADDRESSES, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = ROOT / "examples" / "tables" / "infomem" / "initial.sh"
    done = subprocess.run(["bash", script], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.count("evaluate run") == columns
    assert ("evaluate table infomem" in done.stdout) == (status == 1)
    assert done.returncode == (0 if status == 1 else 2)


VLLM = """#!/usr/bin/env python
import http.server, sys
print(*sys.argv[1:], flush=True)
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Healthy).serve_forever()
"""
"""A `vllm serve` that is only ever healthy."""


def test_a_row_starts_a_server_once_and_stops_it(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name, text in (("memenvs", '#!/bin/sh\necho "$@"\n'), ("vllm", VLLM)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    path = [tmp_path, Path(sys.executable).parent, os.environ["PATH"]]  # the second has python
    settings = {"MODEL": "mine", "PORT": str(port), "SERVE": "--tensor-parallel-size 2"}
    script = ROOT / "examples" / "tables" / "tamtrl" / "base.sh"
    done = subprocess.run(
        ["bash", script],
        env={**os.environ, **settings, "PATH": ":".join(map(str, path))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    played = [line for line in done.stdout.splitlines() if line.startswith("evaluate run")]
    assert len(played) == 7
    for line in played:
        assert f"--policy openai:http://127.0.0.1:{port} " in line
        assert "--tokens mine" in line
    log = (tmp_path / "runs" / "tamtrl" / "eval" / "base" / "vllm.log").read_text()
    assert log.count(f"serve mine --port {port} --tensor-parallel-size 2") == 1
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_greedy_rows_are_greedy():
    for table in ("infomem", "mempo", "mt_ppo"):
        made = commands(ROOT / "examples" / "tables" / table / f"{table}.sh", **ADDRESSES)
        played = [words for words in made if any("/eval/" in word for word in words) and "run" in words]
        assert {words[words.index("--temperature") + 1] for words in played} == {"0"}


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
