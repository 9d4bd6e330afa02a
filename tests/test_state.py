"""States: which environment they belong to, and how plain data becomes a dataclass again."""

from dataclasses import dataclass
from typing import Literal

import gymnasium as gym
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics

import memenvs
from memenvs.core.state import from_plain, to_plain
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.envs.search_qa import SearchQAEnv
from memenvs.envs.sokoban import SokobanEnv, SokobanImageEnv
from memenvs.envs.sokoban_grid import SokobanGridEnv


def state_of(env):
    env.reset(seed=0)
    return env.get_state()


@pytest.mark.parametrize(
    ("make", "other", "said"),
    [
        (ChunkQAEnv, lambda: ChunkQAEnv(chunk_size=900), "ChunkQAEnv with other arguments"),
        (ChunkQAEnv, lambda: ChunkQAEnv("world-test"), "with other tasks: ['world-test', "),
        (SokobanEnv, lambda: SokobanEnv(max_turns=9), "SokobanEnv with other arguments"),
        (SokobanEnv, SokobanImageEnv, "SokobanImageEnv with another class"),
        (SokobanGridEnv, SokobanEnv, "SokobanEnv with another class"),
        (SokobanGridEnv, lambda: SokobanGridEnv(max_steps=9), "SokobanGridEnv with other arguments"),
    ],
)
def test_a_state_of_another_environment_is_refused_by_what_differs(make, other, said):
    env = make()
    before = state_of(env)
    with pytest.raises(ValueError) as error:
        env.set_state(state_of(other()))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert env.get_state() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("np_random", 3), ("np_random", {}), ("tasks", 3), ("episode", {"__array__": 3}), ("last", None)],
)
def test_a_state_whose_fields_have_other_types_is_refused_and_changes_nothing(name, value):
    env = SokobanEnv()
    before = state_of(env)
    with pytest.raises(ValueError) as error:
        env.set_state({**before, name: value})
    assert "\n" not in str(error.value)
    assert env.get_state() == before


def test_a_state_of_another_version_is_refused(monkeypatch):
    env = SokobanEnv()
    state = state_of(env)
    monkeypatch.setattr(SokobanEnv, "version", 1)
    with pytest.raises(ValueError, match=r"SokobanEnv with another version: 0, here 1"):
        env.set_state(state)


def test_a_default_that_is_written_out_is_the_same_argument():
    SokobanImageEnv(max_turns=3, tile=32).set_state(state_of(SokobanImageEnv()))


def test_the_id_and_the_class_behind_it_take_each_others_states():
    made = gym.make("MemChunkQA-v0").unwrapped
    made.set_state(state_of(ChunkQAEnv(render_mode="ansi")))


def test_one_question_file_tells_itself_from_another(tmp_path):
    envs = []
    for name, question in (("a", "who?"), ("b", "what?")):
        path = tmp_path / name / "questions.jsonl"
        path.parent.mkdir()
        path.write_text(f'{{"question": "{question}", "answers": ["Ann"]}}\n')
        envs.append(SearchQAEnv(tasks=str(path), retriever="http://127.0.0.1:9"))
    with pytest.raises(ValueError, match=r"questions\.jsonl"):
        envs[1].set_state(state_of(envs[0]))


@pytest.mark.parametrize("tampered", [{"level": "1"}, {"moves": [7]}, {"moves": "up"}])
def test_a_board_of_other_types_is_refused(tampered):
    env = SokobanGridEnv()
    state = state_of(env)
    with pytest.raises(ValueError, match=r"the state\.(level|moves).* must be"):
        env.set_state({**state, **tampered})
    assert env.get_state() == state


@dataclass
class Inner:
    name: str


@dataclass
class Plain:
    pairs: list[tuple[str, int]]
    span: tuple[int, int] | None
    numbers: tuple[int, ...]
    named: dict[str, float]
    end: Literal["", "over"]
    inner: Inner
    right: bool = False


PLAIN = Plain([("a", 1)], None, (1, 2, 3), {"x": 0.5}, "over", Inner("n"), True)


def test_a_dataclass_comes_back_from_plain_data_with_its_tuples():
    told = to_plain(PLAIN)
    assert told["pairs"] == [["a", 1]]
    assert from_plain(told, Plain, "the state's plain") == PLAIN


@pytest.mark.parametrize(
    "wrong",
    [
        {"pairs": [["a", "1"]]},
        {"span": [1]},
        {"end": "o"},
        {"inner": {}},
    ],
    ids=str,
)
def test_what_its_annotation_does_not_allow_is_refused_by_its_place(wrong):
    with pytest.raises(ValueError, match=rf"the state's plain\.{next(iter(wrong))}"):
        from_plain({**to_plain(PLAIN), **wrong}, Plain, "the state's plain")


def test_what_json_cannot_hold_is_no_state():
    with pytest.raises(TypeError, match="not a bytes"):
        to_plain([b"board"])


def test_a_state_through_a_wrapper_that_is_not_known_is_refused_by_its_name():
    env = gym.make("MemSokoban-v0")
    env.reset(seed=0)
    state, wrapped = memenvs.get_state(env), RecordEpisodeStatistics(env)
    for refused in (lambda: memenvs.get_state(wrapped), lambda: memenvs.set_state(wrapped, state)):
        with pytest.raises(TypeError, match="RecordEpisodeStatistics"):
            refused()
