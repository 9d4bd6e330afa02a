"""Credit of recorded conversations: which methods can run, what turns earn, what is left out."""

import json
import math
import socket

import numpy as np
import pytest
from command_line import run
from made_logs import FOUND, QUESTION, WRONG, labelled, messages, write

import memenvs
from memenvs.logs.credit import contents, credited, runnable
from memenvs.logs.files import LogFiles
from memenvs.wrappers import IGPO, OTC, GiGPO, InfoMem, RepeatedCalls, StepSearch, assign_credit
from memenvs.wrappers.scorers import LexicalScorer


def test_igpo_pays_the_turn_whose_result_holds_the_answer(tmp_path):
    episodes = memenvs.read_conversations(labelled(tmp_path))
    assign_credit(episodes, [IGPO()], LexicalScorer(present=math.log(0.5), absent=math.log(0.25)))
    assert [episode.turn_rewards for episode in episodes] == [[0, 0.25, 1], [0, 0, 0]]
    assert [episode.group for episode in episodes] == [0, 0]
    assert [episode.member for episode in episodes] == [0, 1]


def test_infomem_compares_the_last_context_with_the_question_alone(tmp_path):
    episodes = memenvs.read_conversations(labelled(tmp_path))
    assign_credit(episodes, [InfoMem()], LexicalScorer(present=-1, absent=-3))
    assert [episode.signals["infomem"] for episode in episodes] == [[0, 0, 2], [0, 0, 0]]


def test_stepsearch_and_repeated_calls_need_no_answer(tmp_path):
    path = write(tmp_path, {"messages": WRONG})
    (episode,) = memenvs.read_conversations(path)
    assign_credit([episode], [StepSearch(gains="new"), RepeatedCalls(cost=0.5)])
    assert [credit.value for credit in episode.credits["stepsearch"]] == [1, -1, 0]
    assert [credit.value for credit in episode.credits["repeated_calls"]] == [0, -0.5, 0]


def test_a_memory_in_mem_is_credited_where_it_was_written(tmp_path):
    said = ["<mem>Norrvik is the capital.</mem> Next.", "Norrvik"]
    talk = [
        m for s in said for m in ({"role": "assistant", "content": s}, {"role": "user", "content": "Go on."})
    ]
    path = write(tmp_path, {"messages": [{"role": "user", "content": QUESTION}, *talk], "answer": "Norrvik"})
    (episode,) = memenvs.read_conversations(path)
    privileged = episode.turns[0].info["privileged"]
    assert episode.turns[0].action[slice(*privileged["memory_span"])] == "Norrvik is the capital."
    assert "Next." not in privileged["prompt_with_memory"]
    assert "Norrvik is the capital." in privileged["prompt_with_memory"]
    assert episode.turns[1].info["privileged"]["memory_span"] is None


def test_prompts_are_written_by_the_scorer(tmp_path):
    class Shouting(LexicalScorer):
        def render(self, messages):
            return "|".join(f"{role.upper()} {text}" for role, text in messages)

    (episode, _) = memenvs.read_conversations(labelled(tmp_path), scorer=Shouting())
    prompt = episode.turns[0].info["privileged"]["prompt_with_history"]
    roles = [part.split()[0] for part in prompt.split("|")]
    assert roles == ["USER", "ASSISTANT", "TOOL", "USER"]
    assert prompt.endswith(QUESTION)
    assert {one[1:] for one in IGPO().requests(episode.turns[0])} == {("Norrvik", "")}  # no form is asked for
    assert "1904" not in episode.turns[-1].info["privileged"]["prompt_with_memory"]


def test_methods_without_what_they_need_do_not_run(tmp_path):
    def names(path):
        return {method.name for method in runnable(contents(LogFiles([str(path)])))[0]}

    assert names(write(tmp_path, {"messages": FOUND})) == {"stepsearch", "repeated_calls"}
    one = write(tmp_path, {"messages": FOUND, "answer": "Norrvik"})
    answered = {"stepsearch", "repeated_calls", "igpo", "trace", "infomem"}
    assert names(one) == answered
    assert names(labelled(tmp_path)) == answered | {"gigpo", "otc"}


def test_answers_come_from_a_file_of_questions_also_where_a_prompt_holds_the_question(tmp_path):
    longer = messages("Norrvik", question=f"Answer briefly. Question: {QUESTION} Think first.")
    path = write(
        tmp_path, {"messages": FOUND}, {"messages": longer}, {"messages": messages("?", question="Who?")}
    )
    questions = write(tmp_path, {"question": QUESTION, "answer": "Norrvik"}, name="questions.jsonl")
    found = list(LogFiles([str(path)], str(questions)).conversations())
    assert [conversation.answers for conversation in found] == [("Norrvik",), ("Norrvik",), ()]
    assert [conversation.task for conversation in found] == [QUESTION, QUESTION, "Who?"]


def test_fields_name_what_a_record_calls_otherwise(tmp_path):
    row = {"messages": FOUND, "meta": {"gold": ["Norrvik"], "score": -1}, "q": 0}
    fields = {"answer": "meta.gold", "reward": "meta.score", "group": "q"}
    (found,) = LogFiles([str(write(tmp_path, row))], fields=fields).conversations()
    assert (found.answers, found.reward, found.task) == (("Norrvik",), -1.0, "0")


def test_a_broken_record_is_skipped_by_name_or_refused(tmp_path):
    good = {"messages": FOUND}
    path = write(tmp_path, good, "{broken", {"messages": [{"content": "no role"}]}, {"other": 1}, good)
    source = LogFiles([str(path)])
    assert [conversation.place for conversation in source.conversations()] == ["log.jsonl:1", "log.jsonl:5"]
    assert [line.split(" ")[0] for line in source.broken] == ["log.jsonl:2", "log.jsonl:3", "log.jsonl:4"]
    with pytest.raises(ValueError, match=r"log\.jsonl:2"):
        list(LogFiles([str(path)], strict=True).conversations())


def test_a_file_without_a_conversation_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"log\.jsonl holds no conversation"):
        list(LogFiles([str(write(tmp_path, {"text": "hello"}))]).conversations())


def test_scattered_groups_are_compared_whole(tmp_path):
    other = messages("Bel", question="Which river?")
    rows = [{"messages": m, "reward": r} for m, r in ((FOUND, 1), (other, 1), (WRONG, 0), (other, 0))]
    source = LogFiles([str(write(tmp_path, *rows))])
    found = contents(source)
    pairs = list(credited(source, found, [GiGPO(scale="none", gamma=1)], compare="outcome"))
    assert [conversation.place[-1] for conversation, _ in pairs] == ["1", "3", "2", "4"]
    first = [credit.value for credit in pairs[0][1].credits["gigpo"]]
    assert first == pytest.approx([0.5, 2 / 3, 0.0])  # the third state occurs once
    assert [turn.signals["advantage"] for turn in pairs[2][1].turns] == pytest.approx(
        [math.sqrt(0.5)], rel=1e-4
    )


def test_a_conversation_that_lacks_what_others_have_gets_no_credit_and_changes_none_of_theirs(tmp_path):
    rows = [{"messages": FOUND, "reward": 1, "answer": "Norrvik"}, {"messages": WRONG, "reward": 0}]
    methods = [GiGPO(scale="none"), IGPO(), OTC()]

    def credits(*rows):
        source = LogFiles([str(write(tmp_path, *rows))])
        pairs = credited(source, contents(source), methods, "lexical", compare="outcome")
        return [[turn.credits for turn in episode.turns] for _, episode in pairs]

    first, second = credits(*rows)
    *known, unknown = credits(*rows, {"messages": WRONG})
    assert [turn["gigpo"] for turn in known[0]] == [turn["gigpo"] for turn in first]
    assert [turn["otc"] for turn in known[1]] == [turn["otc"] for turn in second]
    assert all(np.isnan(credit.value) for turn in unknown for name in turn for credit in turn[name])
    assert all(np.isnan(turn["igpo"][0].value) for turn in second)


def test_the_command_ranks_turns_names_the_scorer_and_prints_no_text(tmp_path, capsys):
    path = labelled(tmp_path)
    before = path.read_bytes()
    assert run("credit", [path, "--methods", "IGPO"]) == 0
    out = capsys.readouterr().out
    assert "| igpo | lexical | 6 |" in out
    assert "2 of 3 | search | log.jsonl:1" in out
    assert "Norrvik" not in out
    assert path.read_bytes() == before
    assert run("credit", [path, "--methods", "IGPO", "--json"]) == 0
    printed = capsys.readouterr().out
    best = json.loads(printed)["igpo"]["turns"][0]
    assert (best["turn"], best["conversation"], best["text"]) == ("2 of 3", "log.jsonl:1", "")
    assert "Norrvik" not in printed
    assert run("credit", [path, "--methods", "IGPO", "--show-text"]) == 0
    assert '"query": "capital"' in capsys.readouterr().out


def test_no_network_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", lambda *address: pytest.fail(f"connects to {address}"))
    assert run("credit", [labelled(tmp_path)]) == 0


def test_the_command_says_what_a_method_needs(tmp_path, capsys):
    assert run("credit", [write(tmp_path, {"messages": FOUND}), "--methods", "IGPO"]) == 2
    assert "igpo needs an answer" in capsys.readouterr().err


def test_a_conversation_whose_prompt_cannot_be_scored_fails_alone(tmp_path):
    class Narrow(LexicalScorer):
        def logprobs(self, requests):
            if any("Osterland" in request.prompt for request in requests):
                raise ValueError("request 0 is too long")
            return super().logprobs(requests)

    rows = [{"messages": FOUND, "answer": "Norrvik"}, {"messages": messages("Go.", "Bel"), "answer": "Bel"}]
    source = LogFiles([str(write(tmp_path, *rows))])
    pairs = list(credited(source, contents(source), [IGPO()], Narrow()))
    assert [bool(episode.error) for _, episode in pairs] == [True, False]
    assert np.isnan(pairs[0][1].credits["igpo"][0].value)
