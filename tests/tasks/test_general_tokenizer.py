"""The default tokenizer counts real prose as today's models do, and a task set keeps its own tokenizer."""

import gzip
import json
from pathlib import Path

import gymnasium as gym
import pytest
from reference_values import REFERENCE

from memenvs.build.examples import among_distractors
from memenvs.build.write import write_task_set
from memenvs.tasks.taskset import Card, open_tasks
from memenvs.tasks.tokens import load_tokenizer

QWEN = json.loads((REFERENCE / "qwen_token_counts.json").read_text())["tokens"]


def read(name, data):
    if name == "essays":
        return [path.read_text() for path in sorted((data / "essays").glob("*.txt"))]
    if name == "hotpotqa":
        examples = json.loads((data / "hotpotqa" / "hotpot_train_100.json").read_text())
        return [f"{title}\n{''.join(text)}" for one in examples for title, text in one["context"]]
    if name == "musique":
        examples = json.loads((data / "musique" / "musique_train_60.json").read_text())
        return [
            f"{one['title']}\n{one['paragraph_text']}"
            for example in examples
            for one in example["paragraphs"]
        ]
    with gzip.open(data / "wiki" / "wiki_passages.jsonl.gz", "rt") as file:
        return [json.loads(line)["contents"] for line, _ in zip(file, range(3000), strict=False)]


def test_the_general_tokenizer_counts_the_licence_as_qwens_does_within_5_percent():
    text = (Path(__file__).parents[2] / "LICENSE").read_text()
    assert load_tokenizer().count(text) == pytest.approx(QWEN["LICENSE"], rel=0.05)


@pytest.mark.parametrize("name", ["essays", "hotpotqa", "musique", "wiki"])
def test_the_general_tokenizer_counts_real_prose_as_qwens_does_within_5_percent(name, real_data):
    assert sum(load_tokenizer("general").counts(read(name, real_data))) == pytest.approx(QWEN[name], rel=0.05)


@pytest.mark.parametrize("env_id", ["MemChunkQA-v0", "MemSearchQA-v0", "MemToolQA-v0"])
def test_an_environment_counts_with_the_tokenizer_that_built_its_task_set(env_id, small_set):
    assert gym.make(env_id).unwrapped.tokenizer.name == "general"
    assert small_set.card.tokenizer["name"] == "world"
    assert gym.make(env_id, tasks=str(small_set.path)).unwrapped.tokenizer.name == "world"
    chosen = gym.make(env_id, tasks=str(small_set.path), tokenizer="general")
    assert chosen.unwrapped.tokenizer.name == "general"


def test_questions_without_documents_are_counted_by_the_general_tokenizer(small_set, tmp_path):
    (tmp_path / "asked.jsonl").write_text('{"question": "Who?", "answers": ["Ada"]}\n')
    retriever = f"lexical:{small_set.path}"
    env = gym.make("MemSearchQA-v0", tasks=str(tmp_path / "asked.jsonl"), retriever=retriever)
    assert env.unwrapped.tokenizer.name == "general"


def test_a_chunk_of_a_world_set_has_the_tokens_of_its_own_tokenizer(small_set):
    env = gym.make("MemChunkQA-v0", tasks=str(small_set.path), chunk_size=100)
    prompt, _ = env.reset(seed=0)
    section = prompt.partition("<section>\n")[2].partition("\n</section>")[0]
    assert 95 <= load_tokenizer("world").count(section) <= 101


def test_a_set_whose_tokenizer_is_elsewhere_asks_for_its_path(examples, tmp_path):
    (tmp_path / "mine").mkdir()
    load_tokenizer("world").backend.save(str(tmp_path / "mine" / "tokenizer.json"))
    mine = load_tokenizer(str(tmp_path / "mine"))
    draft = among_distractors(examples, tokenizer=mine, split="train", seed=1, documents=20)
    folder = write_task_set(tmp_path / "set", draft, Card("test"), mine).path
    with pytest.raises(
        ValueError, match="built with the tokenizer 'mine', which is not found here; pass its path"
    ):
        gym.make("MemChunkQA-v0", tasks=str(folder))
    env = gym.make("MemChunkQA-v0", tasks=str(folder), tokenizer=str(tmp_path / "mine"))
    assert env.unwrapped.tokenizer.name == "mine"
    assert open_tasks(folder).card.counts["mean_tokens"] > 0
