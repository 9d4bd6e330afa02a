"""What all sources that hide tasks in texts of any length share: budget, randomness, card."""

import functools

import pytest

from memenvs.build.conversations import ConversationOptions, conversations
from memenvs.build.niah import NiahOptions, niah
from memenvs.build.ruler import RulerOptions, ruler
from memenvs.build.write import write_task_set
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.tasks.context import Reader
from memenvs.tasks.taskset import Card
from memenvs.tasks.tokens import load_tokenizer

PROSE = tuple(
    " ".join(f"Line {i} of text {j} tells of {i * j + 3} ships and a {w}." for i in range(1, 30))
    for j, w in enumerate(("storm", "harbour", "lamp", "cold night"))
)
MAKERS = {
    "noise": (niah, NiahOptions, {"variant": "single_1"}),
    "prose": (niah, NiahOptions, {"variant": "multiquery"}),
    "needles": (niah, NiahOptions, {"variant": "multikey_3"}),
    "vt": (ruler, RulerOptions, {"kind": ["vt"], "chains": 2}),
    "cwe": (ruler, RulerOptions, {"kind": ["cwe"]}),
    "fwe": (ruler, RulerOptions, {"kind": ["fwe"]}),
    "conversations": (conversations, ConversationOptions, {}),
}
PARTS = {"vt": 1, "cwe": 4, "fwe": 8, "conversations": 2}  # documents that come together
each = pytest.mark.parametrize("name", MAKERS)


@functools.cache
def build(name, count=6, tokens=3000, split="train", seed=3, tokenizer=None):
    make, options, chosen = MAKERS[name]
    given = options(num_tasks=count, tokens=tokens, split=split, seed=seed, **chosen)
    return make(given, tokenizer or load_tokenizer(), PROSE)


def texts(draft):
    header = draft.layout.header
    return [
        "".join(
            header.replace("{i}", str(i)) + draft.documents.texts[number]
            for i, number in enumerate(task.documents, 1)
        )
        for task in draft.tasks
    ]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("tokens", [1500, 4096])
def test_the_budget_is_met_and_never_exceeded_for_the_text_tokenised_whole(name, tokens, any_tokenizer):
    draft = build(name, count=3, tokens=tokens, tokenizer=any_tokenizer)
    unit = PARTS.get(name, 1) * (max(any_tokenizer.counts(draft.documents.texts)) + 4)
    assert all(0 <= tokens - any_tokenizer.count(text) < unit for text in texts(draft))


@each
def test_a_task_does_not_depend_on_how_many_follow_it(name):
    few, many = build(name, count=2), build(name)
    assert texts(few) == texts(many)[:2]
    assert [task.answers for task in few.tasks] == [task.answers for task in many.tasks[:2]]


@each
@pytest.mark.parametrize("changed", [{"seed": 4}, {"split": "test"}])
def test_another_seed_or_split_gives_other_tasks(name, changed):
    assert set(texts(build(name))).isdisjoint(texts(build(name, **changed)))


@each
def test_a_budget_too_small_is_one_line(name):
    with pytest.raises(ValueError, match=r"a budget of \d+ tokens is too small for .*; raise it$"):
        build(name, tokens=20)


@each
def test_a_written_set_counts_its_texts_marks_its_evidence_and_pays_gold(name, tmp_path):
    draft, tokenizer = build(name), load_tokenizer()
    tasks = write_task_set(tmp_path / "set", draft, Card(name), tokenizer)
    assert tasks.card.counts["max_tokens"] == max(tokenizer.counts(texts(draft)))
    reader = Reader(tasks, tokenizer)
    for task in tasks if name not in ("cwe", "fwe", "conversations") else ():
        read = reader.context(task.documents)
        found = [read.depth(task.documents.index(number)) for number in task.evidence]
        assert task.meta["depths"] == pytest.approx(found)
    env = ChunkQAEnv(str(tmp_path / "set"), chunk_size=1500)
    env.reset(options={"task": 2})
    over = False
    while not over:
        _, reward, over, _, _ = env.step(env.gold_reply())
    assert reward == 1.0
