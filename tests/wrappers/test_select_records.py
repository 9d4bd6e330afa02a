"""SelectRecords: each turn has a record, the agent selects records, and credit reaches what it selected.

tests/wrappers/test_compact.py runs the tests of the contract.
"""

import copy
import pickle

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import data_equivalence

import memenvs
from memenvs import collect
from memenvs.tasks.tokens import load_tokenizer
from memenvs.wrappers import SelectRecords

ANSWER = "<think></think><answer>x</answer>"


def search(**settings):
    inner = gym.make("MemSearchQA-v0", tasks="world-test", k=1, max_turns=9, disable_env_checker=True)
    return SelectRecords(inner, **{"at": 100_000, "recent": 1, **settings})


def turn(query, record=None):
    written = "" if record is None else f"<record>{record}</record>"
    return f"<think></think>{written}<search>{query}</search>"


def asked(**settings):
    """An environment with records of four of its five turns, and its step that asks for a selection."""
    env = search(**settings)
    env.reset(seed=1)
    env.step(turn("one"))
    env.step(turn("two", "first"))
    env.step(turn("three", "second"))
    env.step(turn("four", "third"))
    env.at = 1
    return env, *env.step(turn("five", "fourth"))


def records_in(prompt):
    return prompt.partition("<records>\n")[2].partition("\n</records>")[0].splitlines()


def after_selection(reply, **settings):
    """The records of the fresh prompt, and what it says behind them."""
    env, *_ = asked(**settings)
    prompt, *_, info = env.step(reply)
    assert info["context"] == "rewrite"
    return [int(line[1]) for line in records_in(prompt)], prompt.partition("</records>\n")[2].strip()


def test_a_request_lists_every_record_and_the_next_prompt_shows_those_selected_and_the_latest():
    env, *_, info = asked()
    assert info["context"] == "append"
    for line in ("[1] first | <search>one</search>", "[4] fourth | <search>four</search>"):
        assert line in info["feedback"]
    prompt, reward, terminated, truncated, info = env.step("<record>fifth</record><select>3, 1</select>")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["context"], info["feedback"], info["turn"]) == ("rewrite", "", 6)
    assert records_in(prompt) == [
        *("[1] first | <search>one</search>", "[3] third | <search>three</search>"),
        "[5] fifth | <search>five</search>",
    ]


def test_records_that_were_not_selected_can_be_selected_later():
    env, *_ = asked()
    env.step("<select>1</select>")
    env.step(turn("six"))  # turn 7: the selection was turn 6
    prompt, *_ = env.step("<record>seventh</record><select>2</select>")
    assert [line[:3] for line in records_in(prompt)] == ["[2]", "[7]"]


def test_a_turn_that_was_recorded_with_the_selection_needs_no_other_record():
    env, *_ = asked()
    env.step("<record>fifth</record><select>1</select>")
    env.at = 100_000
    *_, info = env.step(turn("six", "I selected a record."))  # turn 7
    assert "[5] fifth | " in info["privileged"]["memory"]
    assert (info["privileged"]["memory_span"], info["privileged"]["written"]) == (None, "")
    assert "<record>" not in info["feedback"]
    *_, info = env.step(turn("seven", "seventh"))
    assert "[7] seventh | " in info["privileged"]["memory"]


def test_a_turn_that_the_selection_did_not_record_can_be_recorded_after_it():
    env, *_ = asked()
    prompt, *_ = env.step("<select>1</select>")
    assert "record of turn 5" in prompt
    env.at = 100_000
    *_, info = env.step(turn("six", "fifth"))
    assert info["privileged"]["written"] == "fifth"
    assert "[5] fifth | " in info["privileged"]["memory"]


def test_the_environment_plays_as_without_it():
    env, bare = search(), search().env
    env.reset(seed=1)
    bare.reset(seed=1)
    for number in range(3):
        inside = bare.step(turn(f"town {number}"))
        _, reward, *ends, info = env.step(turn(f"town {number}", f"record {number}" if number else None))
        assert (reward, *ends, info["events"]) == (*inside[1:4], inside[4]["events"])
        assert info["feedback"] == inside[4]["feedback"]
    env.at = 1
    env.step(turn("another"))
    bare.step(turn("another"))
    env.step("<select></select>")
    *_, inside = bare.step(bare.unwrapped.gold_reply())
    *_, info = env.step(env.unwrapped.gold_reply())
    assert info["metrics"]["success"] == info["metrics"]["format"] == 1.0
    assert info["metrics"]["selections"] == 1.0
    assert info["metrics"]["prompt_tokens_peak"] > 0


def test_the_latest_turns_are_kept_unasked():
    assert after_selection("<record>x</record><select></select>") == ([5], "")
    assert after_selection("<record>x</record><select></select>", recent=3) == ([3, 4, 5], "")
    assert after_selection("<record>x</record><select>2</select>", recent=0) == ([2], "")
    assert after_selection("<record>x</record><select>5</select>") == ([5], "")


@pytest.mark.parametrize(
    ("reply", "kept", "said"),
    [
        ("<select>1, 99, 0</select>", [1, 5], "2 unknown"),
        ("<select>2, 2, 1, 2</select>", [1, 2, 5], "2 repeated"),
        (f"<select>{'9' * 500}, 2</select>", [2, 5], "1 unknown"),
        ("<select>٢, ²</select>", [2, 5], ""),  # digits of other scripts
        ("<select>all of them</select>", [5], "no <select>"),
        ("<select>1", [5], "no <select>"),
        ("<think><select>1</select>", [5], "no <select>"),
        ("", [5], "no <select>"),
    ],
)
def test_a_bad_selection_is_one_line_in_the_next_prompt(reply, kept, said):
    numbers, notice = after_selection(f"<record>x</record>{reply}" if "<think>" not in reply else reply)
    assert numbers == kept
    assert said in notice
    assert len(notice.splitlines()) == bool(said)
    assert len(notice) < 250


def test_the_records_shown_stay_within_their_tokens_and_the_latest_come_first():
    env = search(max_memory=40, max_record=12, recent=2)
    env.reset(seed=1)
    env.step(turn("a"))
    for number in range(5):
        env.step(turn("a " * 50, f"{number} is the number of a very long record " * 9))
    env.at = 1
    env.step(turn("b"))
    prompt, *_, info = env.step("<record>last</record><select>1, 2, 3, 4, 5</select>")
    memory = info["privileged"]["memory"]
    assert "\n".join(records_in(prompt)) == memory
    assert load_tokenizer().count(memory) <= 40
    assert "[7] last" in memory
    assert "beyond 40 tokens" in prompt


def test_what_a_reply_writes_is_bounded():
    env, *_ = asked(max_memory=40)
    *_, info = env.step(f"<select>{'1, 2, ' * 50_000}</select>")
    assert load_tokenizer().count(info["privileged"]["written"]) <= 40
    env.at = 100_000
    env.step(turn("six"))
    *_, info = env.step(turn("seven", "a " * 50_000))
    assert load_tokenizer().count(info["privileged"]["written"]) <= 64


def test_a_turn_without_a_record_is_named_once_and_keeps_what_was_done():
    env = search()
    env.reset(seed=1)
    *_, info = env.step(turn("one"))
    assert "<record>" not in info["feedback"]  # the first turn has nothing to say about an earlier one
    *_, info = env.step(turn("two"))
    assert "record of turn 1" in info["feedback"]
    *_, info = env.step(turn("three", "second"))
    assert "record of turn" not in info["feedback"]
    env.at = 1
    env.step(turn("four", "third"))
    prompt, *_ = env.step("<record>fourth</record><select>1</select>")
    assert records_in(prompt)[0] == "[1] (no record) | <search>one</search>"


def test_the_fields_of_a_turn_are_what_methods_read():
    env, *_, before = asked()
    fields = before["privileged"]
    assert fields["written"] == "fourth"
    assert turn("five", "fourth")[slice(*fields["memory_span"])] == "fourth"
    assert [line[:3] for line in fields["memory"].splitlines()] == ["[1]", "[2]", "[3]", "[4]"]
    reply = "<think>hm</think><select>2</select>"
    prompt, *_, info = env.step(reply)
    fields = info["privileged"]
    assert reply[slice(*fields["memory_span"])] == fields["written"] == "2"
    assert fields["memory"] == "\n".join(records_in(prompt))
    assert prompt.startswith(fields["prompt_with_memory"])
    assert fields["prompt_without_memory"] == fields["prompt_with_memory"].replace(fields["memory"], "")
    evidence = before["privileged"]["evidence"][0].splitlines()[-1]
    assert evidence in before["privileged"]["teacher_prompt"]


def test_the_answer_is_no_part_of_the_memory():
    env = search()
    env.reset(seed=1)
    env.step(turn("one"))
    *_, info = env.step("<think></think><record>Arl</record><answer>Bor</answer>")
    assert info["privileged"]["memory"] == "[1] Arl | <search>one</search>"
    assert info["privileged"]["reply"] == "<think></think><answer>Bor</answer>"


def test_a_selection_of_a_record_with_the_answer_is_credited_above_one_without():
    """MemPO's credit reaches the numbers that the agent selected."""

    def agent(selected):
        def reply(observation, info):
            if observation.endswith("another time.\n"):
                return f"<select>{selected}</select>"
            records = {1: f"The answer is {target}.", 2: "Nothing here."}
            return turn("town", records.get(info["turn"])) if info["turn"] < 3 else ANSWER

        return reply

    target = search().reset(seed=1)[1]["privileged"]["target"]
    methods = [["MemPO", {"trajectory": "outcome"}]]
    gains = []
    for number in (1, 2):
        (episode,) = collect(
            lambda: search(at=500, recent=0),
            agent(number),
            [1],
            methods=methods,
            scorer="lexical",
            errors="raise",
        )
        selection = next(k for k, one in enumerate(episode.turns) if one.info["context"] == "rewrite")
        (credit,) = episode.turns[selection].credits["mempo"]
        assert episode.turns[selection].action[slice(*credit.span)] == str(number)
        gains.append(episode.turns[selection].signals["mempo"])
    assert gains[0] > gains[1]


@pytest.mark.parametrize(
    ("reply", "written"),
    [
        ("<select>1 <record>2</record> 3</select>", "1 <record>2</record> 3"),
        ("<record>the <select>1</select> town</record>", "the <select>1</select> town"),
    ],
)
def test_what_is_written_reaches_from_the_first_part_to_the_end_of_the_last(reply, written):
    env, *_ = asked()
    *_, info = env.step(reply)
    assert info["privileged"]["written"] == written


def test_a_number_that_the_limit_cuts_selects_nothing():
    kept, _ = after_selection(f"<record>x</record><select>,{'0 ' * 19}15</select>", max_memory=40)
    assert kept == [5]


@pytest.mark.parametrize("method", ["TAMTRL", "InfoMem"])
def test_credit_methods_run_over_selections(method):
    def agent(observation, info):
        if observation.endswith("another time.\n"):
            return "<record>Arl</record><select>1</select>"
        return turn("town", "Arl" if info["turn"] else None) if info["turn"] < 4 else ANSWER

    methods = [[method, {"side": "both"}] if method == "InfoMem" else method]
    (episode,) = collect(lambda: search(at=1), agent, [1], methods=methods, scorer="lexical", errors="raise")
    selections = {k for k, one in enumerate(episode.turns) if one.info["context"] == "rewrite"}
    measured = set(episode.measured[method.lower()])
    assert measured == {len(episode.turns) - 1} if method == "InfoMem" else selections <= measured
    runs = episode.sequences()
    assert len(runs) == len(selections) + 1
    assert all(one.before["context"] == "append" for run in runs for one in run[1:])


def test_tokens_are_counted_as_the_environment_counts_them():
    env, counts = search(at=400), []
    observation, _ = env.reset(seed=1)
    over = False
    while not over:
        counts.append(load_tokenizer().count(observation))
        reply = turn("town", "Arl") if "another time" not in observation[-80:] else "<select>1, 2</select>"
        observation, _, terminated, truncated, info = env.step(reply)
        over = terminated or truncated
    assert info["metrics"]["selections"] > 1
    assert info["metrics"]["prompt_tokens"] == pytest.approx(sum(counts), rel=0.01)


def test_a_state_behind_a_selection_is_played_again():
    env = search(at=1)
    env.reset(seed=1)
    replies = [turn("one"), "<record>first</record><select>1</select>", turn("two")]
    for reply in replies:
        env.step(reply)
    state, same = memenvs.get_state(env), search(at=1)
    assert state["actions"] == replies
    memenvs.set_state(same, state)
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env)), same]
    played = env.step("<select>1, 3</select>")
    assert all(data_equivalence(one.step("<select>1, 3</select>"), played) for one in copies)
