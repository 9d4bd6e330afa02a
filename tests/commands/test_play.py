"""`memenvs play`: an episode in the terminal."""

import builtins
import io
import re
import subprocess
import sys

import numpy as np
import pytest
from chat_stub import ChatStub
from command_line import evaluate, play

from memenvs.core.episode_file import read_episodes


def main(arguments):
    """Play in the environment of the first argument."""
    return play(["--env", *arguments])


def test_sokoban_is_played_by_its_solution_unless_told_otherwise(capsys):
    assert main(["MemSokoban-v0", "--seed", "3"]) == 0
    assert "return 11.9; success 1," in capsys.readouterr().out


def test_the_question_is_shown_once_and_turns_are_apart(capsys):
    words = "MemChunkQA-v0 --env-args chunk_size=2000 n_documents=12 --policy gold"
    assert main(words.split()) == 0
    first, *later = re.split("\n─+\n", capsys.readouterr().out)
    assert "\nquestion\n" in first
    assert later
    assert not any("\nquestion\n" in turn for turn in later)


def test_chunked_reading_is_played_by_word_overlap_unless_told_otherwise(capsys):
    arguments = ["MemChunkQA-v0", "--env-args", "tasks=world-test", "n_documents=4", "--task", "1"]
    assert main([*arguments, "--policy", "lexical"]) == 0
    lexical = capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().out == lexical


def test_the_grid_is_played_move_by_move(capsys):
    assert main(["MemSokobanGrid-v0", "--env-args", "max_steps=50", "--task", "0"]) == 0
    shown = capsys.readouterr().out
    *boards, last = shown.split("\n\n")
    steps = len([board for board in boards if "#" in board]) - 1  # the first board is before any move
    assert f"steps {steps}, success 1" in last


def test_a_random_player_of_the_grid_is_drawn_by_the_seed(capsys):
    shown = []
    for seed in ("1", "1", "2"):
        main(["MemSokobanGrid-v0", "--policy", "random", "--task", "0", "--seed", seed])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


def test_a_model_plays_as_an_evaluation_of_it_does(tiny_model, tmp_path, capsys):
    options = ["--policy", f"hf:{tiny_model}", "--temperature", "0", "--max-new-tokens", "8", "--task", "2"]
    assert evaluate(["--env", "MemSokoban-v0", *options, "--out", str(tmp_path)]) == 0
    (episode,) = read_episodes(tmp_path / "episodes.jsonl")
    capsys.readouterr()
    assert main(["MemSokoban-v0", *options]) == 0
    shown = capsys.readouterr().out
    assert f"return {episode.metrics['return']:g}; " in shown
    words = " ".join(shown.split())
    assert [turn.action for turn in episode.turns if " ".join(turn.action.split()) not in words] == []


def test_a_models_replies_are_drawn_by_the_seed(tiny_model, capsys):
    shown = []
    for seed in ("1", "1", "2"):
        play = ["MemSokoban-v0", "--policy", f"hf:{tiny_model}", "--max-new-tokens", "8", "--task", "2"]
        assert main([*play, "--seed", seed]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


# By a person.

ROOM = ["MemSokoban-v0", "--seed", "3", "--policy", "me"]
SOLUTION = (
    "<think></think><answer>Right || Right || Up</answer>",
    "<think></think><answer>Up || Left || Up</answer>",
    "<think></think><answer>Left</answer>",
)


@pytest.fixture
def typed(monkeypatch):
    """Gives lines to standard input."""
    return lambda *lines: monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{one}\n" for one in lines)))


def test_a_person_reads_what_the_agent_reads_and_solves_a_level(typed, tmp_path, capsys):
    typed(*SOLUTION)
    assert main([*ROOM, "--save", str(tmp_path / "e.jsonl")]) == 0
    shown = capsys.readouterr().out
    (episode,) = read_episodes(tmp_path / "e.jsonl")
    assert [reply.text for reply in episode.replies] == list(SOLUTION)
    assert (episode.seed, episode.end, episode.success) == (3, "terminated", True)
    assert episode.turns[0].observation.strip() in shown
    for turn in episode.turns:
        assert turn.info["feedback"].strip() in shown
    assert "\nreward +0.20 (format +0.50, step -0.30)\nturn 2\n" in shown
    assert "right answer\n  Right || Right || Up || Up || Left || Up || Left\n" in shown
    assert "return 11.9; success 1," in shown
    assert "view" in shown.splitlines()[-1]


def test_an_endpoint_gets_the_request_that_an_evaluation_sends_it():
    options = ["--top-p", "0.9", "--stop", "</answer>", "--chat-args", "enable_thinking=false"]
    options += ["--body", "presence_penalty=1", "--model", "b", "--max-new-tokens", "7", "--task", "2"]
    with ChatStub(lambda fields: (200, "Up", {"stop_reason": None})) as stub:
        options += ["--policy", f"openai:{stub.url}"]
        assert main(["MemSokoban-v0", *options]) == 0
        turns = len(stub.bodies)
        assert evaluate(["--env", "MemSokoban-v0", *options]) == 0
    own, theirs = ({**fields, "seed": 0} for fields in (stub.bodies[0], stub.bodies[turns]))
    assert own == theirs
    assert (own["model"], own["top_p"], own["stop"], own["presence_penalty"]) == ("b", 0.9, ["</answer>"], 1)


def test_a_person_is_shown_no_evidence_that_the_agent_is_not(typed, capsys):
    typed("a memory")
    reading = ["MemChunkQA-v0", "--env-args", "tasks=world-test", "n_documents=6", "chunk_size=300"]
    main([*reading, "--policy", "me"])
    shown = capsys.readouterr().out
    assert "evidence" not in shown
    assert "\n<memory>\na memory\n</memory>\n" in shown  # of the second prompt
    assert "stopped after 1 turn" in shown


@pytest.mark.parametrize(
    ("lines", "replies"),
    [
        (("", "  ", "one line"), ["one line"]),
        ((".", "two", "", "lines", ".", "then"), ["two\n\nlines", "then"]),
        ((".", "an open", "end"), ["an open\nend"]),
        ((".", "."), [""]),
    ],
)
def test_a_reply_is_a_line_or_the_lines_between_two_dots(lines, replies, typed, tmp_path):
    typed(*lines)
    assert main([*ROOM, "--save", str(tmp_path / "e.jsonl")]) == 0
    (episode,) = read_episodes(tmp_path / "e.jsonl")
    assert [reply.text for reply in episode.replies] == replies


@pytest.mark.parametrize("key", [EOFError, KeyboardInterrupt])
def test_an_episode_that_its_person_stops_is_kept_as_far_as_it_came(
    key, typed, tmp_path, capsys, monkeypatch
):
    keys = iter([SOLUTION[0], key])

    def pressed(prompt):
        if (line := next(keys)) is key:
            raise key
        return line

    monkeypatch.setattr(builtins, "input", pressed)
    typed()
    assert main([*ROOM, "--save", str(tmp_path / "e.jsonl")]) == 0
    (episode,) = read_episodes(tmp_path / "e.jsonl")
    assert (episode.end, episode.turn_rewards, episode.metrics) == ("", [pytest.approx(0.2)], {})
    shown = capsys.readouterr()
    assert "stopped after 1 turn; return so far 0.2\n" in shown.out
    assert shown.err == ""


def test_a_person_who_stops_at_once_leaves_no_episode(typed, tmp_path, capsys):
    typed()
    assert main([*ROOM, "--save", str(tmp_path / "e.jsonl")]) == 0
    assert read_episodes(tmp_path / "e.jsonl") == []
    assert capsys.readouterr().out.endswith("stopped after 0 turns; return so far 0\n")


def test_bytes_that_are_no_utf8_are_a_reply_too(tmp_path):
    play = [sys.executable, "-m", "memenvs", "play", "--env", *ROOM, "--save", str(tmp_path / "e.jsonl")]
    done = subprocess.run(play, input=b"\xff up\n", capture_output=True, check=True)
    assert done.stderr == b""
    (episode,) = read_episodes(tmp_path / "e.jsonl")
    assert [reply.text for reply in episode.replies] == ["\N{REPLACEMENT CHARACTER} up"]


def test_the_grid_is_played_by_keys_numbers_and_words(typed, tmp_path, capsys):
    typed("wS", "left, 3 d", "dwn", "\x1b[A", "down")
    grid = ["MemSokobanGrid-v0", "--policy", "me", "--seed", "3"]
    assert main([*grid, "--save", str(tmp_path / "e.jsonl")]) == 0
    shown = capsys.readouterr().out
    (episode,) = read_episodes(tmp_path / "e.jsonl")
    moves = [reply.text for reply in episode.replies]
    assert moves == ["up", "down", "left", "right", "right", "up", "down"]
    assert "'n' is no move; type w a s d, up down left right, or 0 to 3\n" in shown
    assert "move 7: down, reward -0.10\n######\n" in shown
    assert "stopped after 7 turns; return so far -0.7" in shown


# With reward methods.

READING = "MemChunkQA-v0 --env-args tasks=world-test n_documents=6 chunk_size=300 --task 3".split()


@pytest.mark.parametrize("policy", ["lexical", "me"])
def test_what_methods_measured_and_paid_stands_at_each_turn(policy, typed, capsys):
    typed(*["a memory"] * 20)
    named = ["--methods", "TAMTRL", '["InfoMem", {"beta": 0.1}]', "--scorer", "lexical"]
    assert main([*READING, "--policy", policy, *named]) == 0
    _, _, last = capsys.readouterr().out.partition("credits\n")
    turns = last.splitlines()[:4]
    assert [line.partition(":")[0] for line in turns] == [f"  turn {number}" for number in range(1, 5)]
    assert all(
        re.search(r" in all, tamtrl \+\S+(, infomem \+\S+)?; signals tamtrl 0\.\d+", line)
        for line in turns[:3]
    )
    assert ", infomem +" in turns[3]


def test_a_model_is_the_scorer_of_its_own_methods_and_keeps_its_tokens(tiny_model, tmp_path):
    from memenvs.models import HFPolicy

    sampled = ["--policy", f"hf:{tiny_model}", "--max-new-tokens", "6", "--methods", "tamtrl"]
    assert main([*READING, *sampled, "--save", str(tmp_path / "e.jsonl")]) == 0
    (episode,) = read_episodes(tmp_path / "e.jsonl")
    policy = HFPolicy(str(tiny_model))
    for turn, reply in zip(episode.turns, episode.replies, strict=True):
        prompt = policy.encode(turn.observation)
        assert len(reply.ids) == 6
        sequence, mask = np.concatenate([prompt, reply.ids]), np.arange(len(prompt) + 6) >= len(prompt)
        again = policy.forward([sequence], [mask]).logprobs.detach().numpy()
        np.testing.assert_allclose(reply.logprobs, again, atol=2e-3)
    assert any(episode.signals["tamtrl"])


def test_an_endpoint_that_falls_silent_leaves_the_turns_before_it(tmp_path, capsys):
    replies = iter([(200, SOLUTION[0]), (400, "no more")])
    with ChatStub(lambda fields: next(replies)) as stub:
        play = ["MemSokoban-v0", "--seed", "3", "--policy", f"openai:{stub.url}", "--save"]
        assert main([*play, str(tmp_path / "e.jsonl")]) == 2
    (episode,) = read_episodes(tmp_path / "e.jsonl")
    assert (episode.end, len(episode.turns)) == ("failed", 1)
    assert "no more" in episode.error
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_model_that_is_interrupted_ends_with_130_and_keeps_its_turns(tmp_path, monkeypatch, capsys):
    replies = iter([SOLUTION[0]])

    def reply(*_):
        for text in replies:
            return text
        raise KeyboardInterrupt

    monkeypatch.setattr("memenvs.rollout.policies.make_policy", lambda *_: reply)
    assert main(["MemSokoban-v0", "--seed", "3", "--save", str(tmp_path / "e.jsonl")]) == 130
    (episode,) = read_episodes(tmp_path / "e.jsonl")
    assert len(episode.replies) == 1
    assert "stopped after 1 turn" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["MemChunkQA-v0", "--env-args", "chunksize=600"],
        ["MemSearchQA-v0", "--env-args", "final_answer_turn=no"],
        ["MemSokoban-v0", "--env-args", "render_mode=human"],
        ["MemSokobanGrid-v0", "--policy", "lexical"],
        ["MemSokobanGrid-v0", "--policy", "hf:small"],
        ["MemSokoban-v0", "--policy", "hf:/nowhere"],
        ["MemSokoban-v0", "--policy", "gold", "--temperature", "0"],
        [*READING, "--methods", "TAMTRL"],
        [*READING, "--methods", "TAMTRL", "Continuations"],
        [*READING, "--methods", "TAMTRL", "--scorer", "policy"],
        [*READING, "--methods", "beta=1"],
        [*READING, "--methods", "InfoMem", "bta=1"],
        [*READING, "--methods", '["TAMTRL"'],
        ["MemSokobanGrid-v0", "--methods", "MemPO"],
        ["nothing:Nothing-v0"],
        ["MemChunkQA-v0", "--env-args", "tasks=nothing"],
    ],
)
def test_what_cannot_be_played_is_one_line(arguments, capsys):
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_turn_is_worth_what_playing_on_from_it_changes(tmp_path, capsys):
    small = ["MemChunkQA-v0", "--env-args", "tasks=world-test", "n_documents=4", "chunk_size=600"]
    played = [*small, "--policy", "careful", "--seed", "1", "--save", str(tmp_path / "kept.jsonl")]
    assert main([*played, "--methods", "Continuations", "n=3"]) == 0
    (episode,) = read_episodes(tmp_path / "kept.jsonl")
    values = episode.signals["continuations"]
    credits = [credit.value for credit in episode.credits["continuations"]]
    assert sum(credits) == pytest.approx(episode.outcome - values[0])
    assert "continuations" in capsys.readouterr().out
