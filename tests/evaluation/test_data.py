"""A resumed evaluation refuses other data than it started with, even under the same name."""

import json
import shutil
from types import SimpleNamespace

import pytest
from command_line import evaluate as main
from json_stub import JSONStub

from memenvs.build.examples import among_distractors
from memenvs.build.write import write_task_set
from memenvs.core.errors import ServerError
from memenvs.evaluation.run import data_hashes
from memenvs.retrieval import Corpus, load
from memenvs.retrieval.client import HTTPRetriever
from memenvs.retrieval.lexical import LexicalRetriever
from memenvs.retrieval.load import CachedRetriever
from memenvs.sokoban import environments as sokoban_rules
from memenvs.tasks import taskset as questions
from memenvs.tasks.taskset import Card
from memenvs.tasks.tokens import load_tokenizer

XSB = "######\n#@$. #\n######\n"
OTHER_XSB = "######\n#@ $.#\n######\n"


def evaluate(*arguments, out):
    """Another process has opened nothing yet."""
    for opened in (sokoban_rules.open_levels, questions._open_files, load._open_retriever):
        opened.cache_clear()
    return main([*arguments, "--policy", "silent", "--out", str(out)])


def small_set(folder, examples, seed):
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = load_tokenizer("world")
    draft = among_distractors(examples, tokenizer=tokenizer, split="train", seed=seed, documents=20)
    return write_task_set(folder, draft, Card("test"), tokenizer)


@pytest.fixture
def change(tmp_path, examples):
    """By kind of data: arguments of an environment, and how to put others in their place."""

    def task_set(number):
        small_set(tmp_path / "set", examples, number)

    def lines(number):
        line = {"question": "who", "answers": [f"answer {number}"]}
        (tmp_path / "nq.jsonl").write_text(json.dumps(line) + "\n")

    def corpus(number):
        passage = {"id": "1", "contents": f'"Title"\nthe text {number}'}
        (tmp_path / "corpus.jsonl").write_text(json.dumps(passage) + "\n")

    def levels(number):
        (tmp_path / "levels.txt").write_text(OTHER_XSB if number else XSB)

    corpus(0)
    search = ["--env", "MemSearchQA-v0", "--env-args", f"tasks={tmp_path / 'nq.jsonl'}"]
    search += [f"retriever=lexical:{tmp_path / 'corpus.jsonl'}"]
    lines(0)
    return {
        "task set": (["--env", "MemChunkQA-v0", "--env-args", f"tasks={tmp_path / 'set'}"], task_set),
        "questions": (search, lines),
        "corpus": (search, corpus),
        "levels": (
            ["--env", "MemSokoban-v0", "--env-args", f"levels={tmp_path / 'levels.txt'}", "min_solution=1"],
            levels,
        ),
    }


@pytest.mark.parametrize("kind", ["task set", "questions", "corpus", "levels"])
def test_a_run_resumes_with_the_same_data_and_refuses_others_under_the_same_name(
    kind, change, tmp_path, capsys
):
    arguments, put = change[kind]
    put(0)
    assert evaluate(*arguments, "--task", "0", out=tmp_path / "run") == 0
    put(0)
    assert evaluate(*arguments, "--task", "0", "--samples", "2", out=tmp_path / "run") == 0
    assert len((tmp_path / "run" / "episodes.jsonl").read_text().splitlines()) == 2
    put(1)
    capsys.readouterr()
    assert evaluate(*arguments, "--task", "0", "--samples", "3", out=tmp_path / "run") == 2
    told = capsys.readouterr().err
    assert "was begun with data = " in told
    assert told.count("\n") == 1


def test_a_model_folder_whose_chat_template_changed_is_another_policy(tmp_path, tiny_model, capsys):
    pytest.importorskip("torch")
    model = shutil.copytree(tiny_model, tmp_path / "model")
    command = ["--env", "MemSokoban-v0", "--policy", f"hf:{model}", "--max-new-tokens", "2"]
    command += ["--task", "0", "--out", str(tmp_path / "run")]
    assert main(command) == 0
    template = model / "chat_template.jinja"
    template.write_text(template.read_text() + " ")
    assert main(command) == 2
    assert "was begun with files = " in capsys.readouterr().err


def env_with(retriever):
    return SimpleNamespace(task_set=lambda: ("", ""), retriever=retriever)


@pytest.mark.parametrize(
    ("status", "answer", "told"),
    [(200, {"fingerprint": "f"}, {"retriever": "f"}), (200, {}, {}), (404, {}, {})],
)
def test_a_retrieval_server_is_asked_what_it_serves(status, answer, told):
    with JSONStub(lambda path, fields: (status, answer)) as server:
        assert data_hashes(env_with(CachedRetriever(HTTPRetriever(server.url)))) == told


def test_a_retrieval_server_that_is_unreachable_is_an_error():
    retriever = HTTPRetriever("http://127.0.0.1:9", tries=1)
    with pytest.raises(ServerError, match="no answer from"):
        data_hashes(env_with(retriever))


def test_environments_over_one_corpus_have_one_hash_and_others_another():
    one, same, other = (
        LexicalRetriever(Corpus.from_documents([("1", "Title", text)])) for text in ("text", "text", "other")
    )
    hashes = [data_hashes(env_with(r))["retriever"] for r in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]
