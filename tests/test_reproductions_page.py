"""Tables and pictures of docs/reproductions.md are those of the records in docs/results."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from page_tables import rows, sections

pytest.importorskip("matplotlib")

from benchmarks.figures import draw_all
from benchmarks.reproduce import mempo, reader, sokoban, tool_use
from benchmarks.reproduce.runs import record_table, shares_table, shown

DOCS = Path(__file__).parents[1] / "docs"
PAGE = sections((DOCS / "reproductions.md").read_text(), 2)
SECTIONS = {  # the record of each section's first table, and the metrics in its columns
    "Sokoban: MT-PPO Table 5": ("sokoban_1", ["eval_success", "eval_effective_player", "eval_format"]),
    "Sokoban with two boxes": ("sokoban_2", ["eval_success", "eval_effective_player", "eval_format"]),
    "Two-turn tool use: MT-GRPO Table 2": ("tool_use", ["eval_called", "eval_retrieved", "eval_em"]),
    "Chunked reading: TAMTRL and InfoMem": ("reading_methods", ["eval_success"]),
    "Two objectives with a memory: MemPO": (
        "mempo",
        ["eval_em", "eval_f1", "eval_prompt_tokens", "eval_prompt_tokens_peak"],
    ),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_table_has_the_numbers_of_its_record(section):
    file, metrics = SECTIONS[section]
    record = json.loads((DOCS / "results" / f"{file}.json").read_text())
    table = {name: cells for name, *cells in rows(PAGE[section])}
    assert set(table) == set(record["last"])
    for method, found in record["last"].items():
        wanted = [shown(found[name], 0 if "tokens" in name else 3) for name in metrics]
        assert table[method][: len(wanted)] == wanted


def test_further_columns_are_those_of_their_records():
    called = {name: cells[-1] for name, *cells in rows(PAGE["Two-turn tool use: MT-GRPO Table 2"])[:5]}
    reading = {name: cells[1:] for name, *cells in rows(PAGE["Chunked reading: TAMTRL and InfoMem"])[:10]}
    for method, cell in list(called.items())[1:]:
        found = recorded("tool_use")["curves"][method]["eval_called"]
        assert cell == ", ".join(f"{values[steps.index(5)]:.2f}" for steps, values in found)
    for method, (tokens, first) in reading.items():
        record = recorded("reading_methods")
        assert tokens == mean(record["last"][method]["eval_reply_tokens"], 1)
        curves = record["curves"][method]["eval_success"]
        reached = [[step for step, value in zip(*one, strict=True) if value >= 0.45] for one in curves]
        assert first == ", ".join(str(steps[0]) if steps else "never" for steps in reached)


def recorded(file):
    return json.loads((DOCS / "results" / f"{file}.json").read_text())


def test_further_tables_are_those_of_their_records():
    section = PAGE["A reader that reads: TAMTRL and InfoMem"]
    assert reader.table(recorded("reader")["methods"]) in section
    assert reader.turns_table(recorded("reader")["turns"]) in section
    assert tool_use.by_curve(recorded("tool_use")) in PAGE["Two-turn tool use: MT-GRPO Table 2"]
    for section in ("Sokoban: MT-PPO Table 5", "Sokoban with two boxes"):
        record = recorded(SECTIONS[section][0])
        assert sokoban.last_table(record["last_policies"]) in PAGE[section]
    longer = recorded("sokoban_1_600")
    assert sokoban.last_table(longer["last_policies"]) in PAGE["Sokoban: MT-PPO Table 5"]
    assert shown(longer["last"]["PPO-OR"]["eval_success"]) in PAGE["Sokoban: MT-PPO Table 5"]
    _, *others = tables_of(PAGE["Two objectives with a memory: MemPO"])
    assert len(others) == 9
    assert set(others) < set(mempo.tables(recorded("mempo_objectives")).split("\n\n"))
    reading = PAGE["Chunked reading: TAMTRL and InfoMem"]
    assert shares_table(recorded("reading_memories")["shares"]) in reading
    assert shares_table(recorded("reading_ablations_memories")["shares"]) in reading
    assert record_table(recorded(AGAIN)) in reading


def tables_of(section):
    return [found.rstrip("\n") for found in re.findall(r"(?:^\|.*\n?)+", section, re.MULTILINE)]


def ends(file, method, metric):
    """Of each seed what the first table of a section is made of."""
    return np.array(recorded(file)["last"][method][metric])


def curves(file, method, metric):
    """Of each seed its evaluations."""
    return np.array([values for _, values in recorded(file)["curves"][method][metric]])


def mean(values, digits=3):
    return f"{np.mean(values):.{digits}f}"


def spread(values):
    return [f"{min(values):.3f}", f"{max(values):.3f}"]


def error(differences, digits=3):
    return mean(np.std(differences, ddof=1) / np.sqrt(len(differences)), digits)


def cell(world, turns, method):
    cells = recorded("credit_bench")["cells"]
    return next(one for one in cells if (one["world"], one["turns"], one["method"]) == (world, turns, method))


def steps(world, turns, method):
    return mean(cell(world, turns, method)["steps"]["mean"], 0)


def reading(*methods):
    return [mean(ends("reading_methods", method, "eval_success")) for method in methods]


def calls(method):
    return ends("tool_use", method, "eval_called")


def answers(method, of=ends):
    return of("tool_use", method, "eval_em")


def reading_errors(*methods):
    best = ends("reading_methods", "TAMTRL", "eval_success")
    return [error(best - ends("reading_methods", method, "eval_success")) for method in methods]


def read(method, metric="em"):
    """Of each seed what the reader that reads has at its end."""
    return np.array([run["found"][-1][metric] for run in recorded("reader")["methods"][method]])


def by_seed(method, metric="em"):
    return [f"{value:.3f}" for value in read(method, metric)]


def taken_at(method, turn, *seeds):
    return [f"{read(method, 'taken')[seed][turn]:.2f}" for seed in seeds]


def unchanged(method, seed):
    return [f"{share:.2f}" for share in recorded("reader")["turns"][method][str(seed)]["unchanged"]]


def paid(method, kind, name):
    """The mean signal or advantage of the turns of a kind, or their share of all: "turns"."""
    return reader.paid_to(recorded("reader")["turns"][method].values())[kind][name]


def reached(world, turns, *methods):
    return [str(cell(world, turns, method)["reached"]) for method in methods]


def some(world, turns, *methods):
    """Nothing where the page says none."""
    return [runs for runs in reached(world, turns, *methods) if runs != "0"]


def behind():
    return answers("MT-GRPO") - answers("GRPO-OR")


def solved(file, *methods):
    return [mean(ends(file, method, "eval_success")) for method in methods]


def gaps(file, metric, method, other, of=ends):
    """By how much a method is ahead of another, by seed."""
    found = of(file, method, metric) - of(file, other, metric)
    return found.reshape(len(found), -1).mean(1)


def lead(file, metric, method, other, of=ends):
    """Of all seeds the mean difference in size, and its standard error."""
    return differs(gaps(file, metric, method, other, of))


def boxes_lead(file, method, other, of=ends):
    return lead(file, "eval_success", method, other, of)


def reading_lead(method, other, of=ends, file="reading_methods"):
    return lead(file, "eval_success", method, other, of)


def again(method):
    return mean(ends(AGAIN, method, "eval_success"))


def first_right(method):
    """Of each seed the share of other test answers that the last policy from the second warm-up has right."""
    return np.array([run["em"] for run in recorded("reading_ablations_memories")["shares"][method]])


def asked(number, method, metric="em"):
    return np.array([run[number][metric] for run in recorded("mempo_objectives")[method]])


def differs(found):
    """A mean difference in size, and its standard error."""
    return [mean(abs(np.mean(found))), error(found)]


def objectives_lead(number, method="MemPO", other="GRPO"):
    return differs(asked(number, method) - asked(number, other))


def fewer(metric, method, other):
    """Tokens with ten questions, fewer with every seed."""
    found = [asked("10", name, metric) for name in (method, other)]
    assert (found[0] < found[1]).all()
    return [f"{of.mean():,.0f}" for of in found]


def likely_to_all(method, turn):
    """P of a turn's memories, of each seed, by the policy that all began with."""
    return [run["likely to all"]["turns"][turn][0] for run in recorded("mempo_objectives")[method]]


def played(file, method, metric):
    """Of each seed what its last policy does in more episodes."""
    return np.array(recorded(file)["last_policies"][metric][method])


def played_lead(file, method, other):
    return lead(file, "success", method, other, played)


def played_means(file, *methods):
    return [mean(played(file, method, "success")) for method in methods]


def early(file):
    return [np.mean(played(file, method, "early_share")) for method in PPO]


DECIDES = {  # the numbers of each claim's last cell, in their order
    "MT-PPO Table 5: PPO above GRPO": lambda: [
        *spread([float(one) for one in played_means(ONE, *PPO)]),
        *played_means(ONE, "GRPO-OR", "GRPO-MR"),
        *(number for method in ("PPO-MR", "MT-PPO") for number in boxes_lead(ONE, method, "GRPO-OR", curves)),
    ],
    "MT-PPO above PPO-MR above PPO-OR": lambda: [
        *played_lead(ONE, "MT-PPO", "PPO-MR"),
        *played_lead(ONE, "PPO-MR", "PPO-OR"),
        *{mean(np.abs(share)) for share in early(ONE)},
    ],
    "GRPO-MR above GRPO-OR": lambda: solved(ONE, "GRPO-MR", "GRPO-OR", "GRPO-MR, no std"),
    "PPO above GRPO, two boxes": lambda: [
        *spread([float(one) for one in played_means(TWO, *PPO)]),
        *played_means(TWO, "GRPO-OR", "GRPO-MR"),
        *(number for method in reversed(PPO) for number in played_lead(TWO, method, "GRPO-OR")),
    ],
    "MT-PPO above PPO-MR above PPO-OR, two boxes": lambda: [
        *played_lead(TWO, "MT-PPO", "PPO-MR"),
        *played_lead(TWO, "PPO-MR", "PPO-OR"),
        *played_lead(TWO, "MT-PPO", "PPO-OR"),
        *spread(early(TWO)),
    ],
    "GRPO-MR above GRPO-OR, two boxes": lambda: solved(TWO, "GRPO-MR", "GRPO-OR", "GRPO-MR, no std"),
    "MemPO Fig. 3: above GRPO with a memory": lambda: [
        *(mean(ends("mempo", method, "eval_em")) for method in ("MemPO", "GRPO")),
        *objectives_lead("6"),
        *objectives_lead("4"),
    ],
    "MemPO Fig. 3, paid by the paper's reward, right and in form": lambda: [
        *(mean(ends("mempo", method, "eval_em")) for method in STRICT),
        *lead("mempo", "eval_em", *STRICT),
        *(number for asking in ("4", "6", "2, all turns") for number in objectives_lead(asking, *STRICT)),
    ],
    "MemPO Table 1: a memory takes fewer tokens than none": lambda: [
        number for metric in PROMPTS for number in fewer(metric, *UNREMEMBERING)
    ],
    "MemPO Table 1: more right answers than without a memory": lambda: [
        mean(ends("mempo", method, "eval_em")) for method in UNREMEMBERING
    ],
    "MemPO eq. 4: P less b (here the history) and not P alone": lambda: [
        *(mean(ends("mempo", method, "eval_em")) for method in ("MemPO", "MemPO, b = 0")),
        "0",
    ],
    "MemPO Fig. 3: the whole history helps with few questions, harms with many": lambda: [
        mean(asked(number, "MemPO")) for number in ("2", "2, all turns", "6", "6, all turns")
    ],
    "MemPO Fig. 4: its memories make the answers likelier": lambda: [
        *(mean(likely_to_all(method, 4), 2) for method in ("MemPO", "GRPO", *STRICT)),
        *differs(np.subtract(*(likely_to_all(method, 4) for method in STRICT))),
    ],
    "MT-GRPO Table 2: rewards of turns teach to call, the outcome alone does not": lambda: [
        *spread([*calls("MT-GRPO"), *calls("GRPO-MR")]),
        "0.000",
        *spread([one for one in calls("GRPO-OR") if one > 0.001]),
    ],
    "MT-GRPO above GRPO-OR in exact match": lambda: [
        *(mean(answers(method)) for method in ("MT-GRPO", "GRPO-OR")),
        *(f"{one:.2f}" for one in sorted(behind())[:-3:-1]),
        *spread(sorted(behind())[:3]),
    ],
    "MT-GRPO above GRPO-MR": lambda: [
        *lead("tool_use", "eval_em", "MT-GRPO", "GRPO-MR", curves),
        *(mean(answers(method)) for method in ("MT-GRPO", "GRPO-MR")),
    ],
    "TAMTRL Table 1: above the outcome alone": lambda: [
        *(
            number
            for of in (curves, ends)
            for file in ("reading_methods", AGAIN)
            for number in reading_lead("TAMTRL", "outcome only", of, file)
        ),
    ],
    "TAMTRL paid for what changed (ours): above TAMTRL": lambda: [
        *reading("TAMTRL, change", "TAMTRL"),
        *(again(method) for method in ("TAMTRL, change", "TAMTRL")),
    ],
    "TAMTRL compared at the same turn alone (ours): above TAMTRL": lambda: [
        *(again(method) for pair in BY_TURN for method in pair),
        *(again(f"{own}, no std") for own, _ in BY_TURN),
        *(number for own, whole in BY_TURN for number in reading_lead(f"{own}, no std", whole, file=AGAIN)),
    ],
    "TAMTRL Table 3: product above plus": lambda: [
        *reading("TAMTRL", "TAMTRL, plus"),
        *reading_lead("TAMTRL", "TAMTRL, plus", curves),
    ],
    "TAMTRL Tables 2, 3: min-max helps, the local view too": lambda: [
        *reading("TAMTRL", "TAMTRL, no min-max", "TAMTRL, global"),
        *reading_errors("TAMTRL, no min-max", "TAMTRL, global"),
    ],
    "InfoMem Table 2: above the outcome alone": lambda: [
        *reading_lead("InfoMem", "outcome only", curves),
        *reading_lead("InfoMem", "outcome only", curves, AGAIN),
        *reading("InfoMem", "outcome only"),
    ],
    "TAMTRL Table 2: length normalisation helps": lambda: [
        again(method) for method in ("TAMTRL", "TAMTRL, no length norm")
    ],
    "InfoMem Table 2: above ReMemR1 (its state reward, without callbacks)": lambda: [
        *reading_lead("InfoMem", "ReMemR1", ends, AGAIN),
        *reading_lead("InfoMem", "ReMemR1", curves, AGAIN),
    ],
    "InfoMem Fig. 3: paying successes teaches without the outcome": lambda: [
        mean(first_right("warmed up")),
        mean(first_right("InfoMem, no outcome")),
    ],
    "InfoMem Fig. 3: paying successes is best": lambda: reading(
        "InfoMem", "InfoMem, both sides", "InfoMem, wrong side"
    ),
    "InfoMem Table 3: the z-score helps": lambda: reading_lead("InfoMem", "InfoMem, no normalisation"),
    "TAMTRL Table 1, with a language model that reads": lambda: [
        *(mean(read(method)) for method in ("TAMTRL", "outcome only")),
        *differs(read("TAMTRL") - read("outcome only")),
        *(number for method in ("TAMTRL", "outcome only") for number in spread(read(method))),
    ],
    "TAMTRL paid for what changed (ours), with a language model that reads": lambda: [
        *(mean(read(method)) for method in ("TAMTRL, change", "TAMTRL")),
        *differs(read("TAMTRL, change") - read("TAMTRL")),
        mean(read("outcome only")),
        *differs(read("TAMTRL, change") - read("outcome only")),
    ],
    "InfoMem Table 2, with a language model that reads": lambda: [
        *(mean(read(method)) for method in ("InfoMem", "outcome only")),
        *differs(read("InfoMem") - read("outcome only")),
    ],
    "InfoMem Table 3, Fig. 4: the answer and not the query": lambda: [
        *(mean(read(method)) for method in ("InfoMem", "InfoMem, query")),
        *(mean(read(method, "query_words")) for method in ("InfoMem", "InfoMem, query")),
    ],
    "rewards of turns are worth more the more turns there are": lambda: [
        *(steps("chain", 3, method) for method in ("outcome", "turn")),
        "3",
        *(steps("chain", 5, method) for method in ("outcome", "turn")),
        "5",
        steps("chain", 8, "turn"),
        "8",
    ],
    "MT-GRPO's division by std per turn": lambda: [
        "5",
        "8",
        *(one for world in WORLDS for turns in (5, 8) for one in some(world, turns, "turn")),
        *(
            f"{find(float(steps(world, turns, 'turn-noscale')) for world in WORLDS for turns in (5, 8)):.0f}"
            for find in (min, max)
        ),
    ],
    "credit for memories carries them over turns": lambda: [
        "8",
        *sorted(set(reached("carrying", 8, "tamtrl", "mempo", "rememr1"))),
        "10",
        *some("carrying", 8, "outcome", "igpo", "infomem"),
    ],
    "TAMTRL where evidence is rare": lambda: [
        "5",
        *reached("once", 5, "tamtrl"),
        "10",
        *reached("once", 5, "tamtrl-change"),
        "10",
        steps("once", 5, "tamtrl-change"),
        *reached("once", 5, "tamtrl-turn"),
        "10",
        *(steps("once", 5, method) for method in ("tamtrl-turn", "outcome")),
        "8",
        *some("once", 8, "tamtrl", "tamtrl-change", "tamtrl-turn", "outcome"),
        "10",
    ],
}
ONE, TWO = "sokoban_1", "sokoban_2"  # boxes
BY_TURN = (("TAMTRL, by turn", "TAMTRL"), ("TAMTRL, change, by turn", "TAMTRL, change"))
AGAIN = "reading_ablations_methods"  # chunked reading, from another warm-up
PPO = ("MT-PPO", "PPO-MR", "PPO-OR")
STRICT = ("MemPO, strict", "GRPO, strict")
PROMPTS = ("prompt_tokens", "prompt_tokens_peak")
UNREMEMBERING = ("MemPO", "GRPO, no memory")
WORLDS = ("distracting", "stopping")
ELSEWHERE = {"the outcome alone does not teach to call"}  # of tests/call_or_guess.py, which leaves no record


def claims():
    page = (DOCS / "reproductions.md").read_text()
    return {claim: said for claim, *_, said in rows(page)}


def test_every_claim_has_its_numbers_held_to_a_record():
    assert set(claims()) == set(DECIDES) | ELSEWHERE


@pytest.mark.parametrize("claim", DECIDES)
def test_the_number_that_decides_is_that_of_the_record(claim):
    assert re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", claims()[claim]) == DECIDES[claim]()


def test_every_picture_of_the_pages_is_drawn_from_a_record(tmp_path):
    made = {path.name for path in draw_all(DOCS / "results", tmp_path)}
    pages = "".join((DOCS / page).read_text() for page in ("reproductions.md", "credit_bench.md"))
    assert made == {
        part.partition(")")[0]
        for part in pages.split("](results/")
        if part.partition(")")[0].endswith(".png")
    }


def boxes(file):
    """What gives `gaps` in success: at the end, over the curve, by the last policies, by these greedily."""

    def of(place, metric="eval_success"):
        return lambda method, other: gaps(file, metric, method, other, place)

    return of(ends), of(curves), of(played, "success"), of(played, "greedy")


def one_box():
    ended, over, last, greedy = boxes(ONE)
    return [
        *(last(method, "GRPO-OR") for method in ("PPO-OR", "MT-PPO", "PPO-MR")),
        *(greedy(method, "GRPO-OR") for method in ("PPO-OR", "MT-PPO", "PPO-MR")),
        *(of(method, "GRPO-OR") for of in (over, ended) for method in ("PPO-OR", "MT-PPO", "PPO-MR")),
        *(of(*pair) for of in (ended, last) for pair in PAIRS),
        ended("GRPO-MR", "GRPO-OR"),
        ended("GRPO-MR, no std", "GRPO-MR"),
        ended("GRPO-MR, no std", "GRPO-OR"),
    ]


def two_boxes():
    ended, _, last, _ = boxes(TWO)
    return [
        *(last(method, "GRPO-OR") for method in ("PPO-OR", "PPO-MR", "MT-PPO")),
        *(ended(method, "GRPO-OR") for method in ("PPO-OR", "MT-PPO", "PPO-MR")),
        *(of(*pair) for of in (last, ended) for pair in PAIRS),
        ended("GRPO-MR", "GRPO-OR"),
        ended("GRPO-MR, no std", "GRPO-OR"),
    ]


def memories(share):
    found = recorded("mempo_objectives")
    return [np.array([run["memories"][share] for run in found[method]]) for method in ("MemPO", "GRPO")]


def likelier(turn, *methods):
    return np.subtract(*(likely_to_all(method, turn) for method in methods))


def less_likely(*methods):
    """The share of memories in the lowest fifth of P, of the first method less that of the second."""
    found = recorded("mempo_objectives")
    return np.subtract(*([run["likely to all"]["bins"][0][0] for run in found[name]] for name in methods))


def small_reader():
    return [
        gaps("reading_methods", "eval_success", method, other, of)
        for method, other, of in (
            ("TAMTRL", "outcome only", curves),
            ("TAMTRL", "outcome only", ends),
            ("TAMTRL, change", "TAMTRL", ends),
            ("TAMTRL, change", "outcome only", ends),
            ("TAMTRL, change", "TAMTRL, plus", ends),
            ("TAMTRL, plus", "TAMTRL", ends),
            ("TAMTRL", "TAMTRL, plus", curves),
            ("TAMTRL", "TAMTRL, no min-max", ends),
            ("TAMTRL", "TAMTRL, global", ends),
            ("InfoMem", "outcome only", curves),
            ("InfoMem", "outcome only", ends),
            ("InfoMem, both sides", "InfoMem, wrong side", ends),
            ("InfoMem", "InfoMem, no normalisation", ends),
        )
    ]


def small_reader_again():
    return [
        gaps(AGAIN, "eval_success", "TAMTRL", "TAMTRL, no length norm"),
        *(gaps(AGAIN, "eval_success", "InfoMem", "ReMemR1", of) for of in (ends, curves)),
        *(gaps(AGAIN, "eval_success", "TAMTRL", "ReMemR1", of) for of in (curves, ends)),
        *(gaps(AGAIN, "eval_success", "TAMTRL", "outcome only", of) for of in (curves, ends)),
        first_right("TAMTRL") - first_right("outcome only"),
        gaps(AGAIN, "eval_success", "InfoMem", "outcome only", curves),
        *(
            sum(gaps(file, "eval_success", method, "outcome only", of) for file in ("reading_methods", AGAIN))
            / 2
            for method in ("TAMTRL", "InfoMem")
            for of in (curves, ends)
        ),
        *(gaps(AGAIN, "eval_success", "TAMTRL, change", other) for other in ("TAMTRL", "outcome only")),
        *(gaps(AGAIN, "eval_success", whole, own) for own, whole in BY_TURN),
        *(gaps(AGAIN, "eval_success", f"{own}, no std", own) for own, _ in BY_TURN),
        *(gaps(AGAIN, "eval_success", f"{own}, no std", whole) for own, whole in BY_TURN),
    ]


PAIRS = (("MT-PPO", "PPO-MR"), ("PPO-MR", "PPO-OR"), ("MT-PPO", "PPO-OR"))
DIFFERENCES = {  # of each section's text, in their order: by seed
    "Sokoban: MT-PPO Table 5": one_box,
    "Sokoban with two boxes": two_boxes,
    "Two-turn tool use: MT-GRPO Table 2": lambda: [
        gaps("tool_use", "eval_em", "MT-GRPO", "GRPO-MR", curves),
        gaps("tool_use", "eval_em", "MT-GRPO", "GRPO-MR"),
        gaps("tool_use", "eval_retrieved", "MT-GRPO", "GRPO-MR", curves),
    ],
    "Chunked reading: TAMTRL and InfoMem": lambda: [*small_reader(), *small_reader_again()],
    "A reader that reads: TAMTRL and InfoMem": lambda: [
        read("TAMTRL") - read("outcome only"),
        *(read("TAMTRL, change") - read(other) for other in ("TAMTRL", "outcome only")),
        *(read("InfoMem") - read(other) for other in ("outcome only", "TAMTRL", "InfoMem, query")),
    ],
    "Two objectives with a memory: MemPO": lambda: [
        gaps("mempo", "eval_em", *STRICT),
        gaps("mempo", "eval_em", "MemPO", "GRPO"),
        gaps("mempo", "eval_em", "MemPO", "GRPO", curves),
        *(asked(number, "MemPO") - asked(number, "GRPO") for number in ("2", "6", "8")),
        gaps("mempo", "eval_prompt_tokens", "MemPO", "GRPO"),
        *(gaps("mempo", "eval_em", *STRICT, of) for of in (ends, curves)),
        gaps("mempo", "eval_format", *STRICT),
        *(
            np.subtract(*(asked(number, method) for method in STRICT))
            for number in ("4", "6", "8", "10", "2, all turns", "2, 3 turns")
        ),
        asked("2, all turns", "GRPO, strict") - asked("2, all turns", "GRPO"),
        np.subtract(*(asked("10", method, "format") for method in STRICT)),
        *(np.subtract(*memories(share)) for share in ("taken", "kept")),
        *(asked(f"{number}, all turns", "MemPO") - asked(number, "MemPO") for number in ("2", "6")),
        asked("4, 3 turns", "GRPO") - asked("4", "GRPO"),
        asked("4, all turns", "MemPO") - asked("4", "MemPO"),
        likelier(4, "MemPO", "GRPO"),
        less_likely("MemPO", "GRPO"),
        likelier(4, *STRICT),
        less_likely(*STRICT),
    ],
}


@pytest.mark.parametrize("section", DIFFERENCES)
def test_a_difference_in_the_text_is_that_of_the_record(section):
    text = re.sub(r"(?m)^\|.*$", "", PAGE[section])
    said = re.findall(r"(-?)(\d+\.\d+)\s+±\s+(\d+\.\d+)", text)
    for (sign, size, spread_by), by_seed in zip(said, DIFFERENCES[section](), strict=True):
        difference = np.mean(by_seed)
        assert size == mean(abs(difference), decimals(size))
        assert spread_by == error(by_seed, decimals(spread_by))
        assert not sign or difference < 0


def decimals(number):
    return len(number.partition(".")[2])


# Sentences with their numbers


def at(file, method, step, metric):
    """Of each seed its evaluation at a training step."""
    found = recorded(file)["curves"][method][metric]
    return np.array([values[steps.index(step)] for steps, values in found])


def sampled_and_greedy(method):
    """What training adds to the first policy of one box."""
    return [
        mean(np.mean(played(ONE, method, metric)) - np.mean(played(ONE, "warmed up", metric)), 2)
        for metric in ("success", "greedy")
    ]


def seeds_needed(file, method, other):
    """That show a difference of 0.01 between last policies at two standard errors."""
    found = gaps(file, "success", method, other, played)
    return f"{(2 * np.std(found, ddof=1) / 0.01) ** 2:.0f}"


def held(method, share):
    """What the memories of the small reader's last policies hold."""
    return np.mean([run[share] for run in recorded("reading_memories")["shares"][method]])


def holds(share, *methods, digits=3):
    return [mean(held(method, share), digits) for method in methods]


def signal(name, digits=2):
    return mean(recorded("reading_memories")["signals of the warmed-up model"][name], digits)


def reading_at(step, *methods):
    return [mean(at("reading_methods", method, step, "eval_success")) for method in methods]


def lost():
    """Shares of calls by the outcome alone, of the seeds that lose the call: from step 5, from step 20."""
    found = [recorded("tool_use")["curves"]["GRPO-OR"]["eval_called"][seed] for seed in (1, 4)]
    return [
        max(value for steps, values in found for at, value in zip(steps, values, strict=True) if at >= first)
        for first in (5, 20)
    ]


def calling():
    """Evaluations of the three seeds that go on calling, MT-GRPO's less the outcome alone's."""
    found = curves("tool_use", "MT-GRPO", "eval_em") - curves("tool_use", "GRPO-OR", "eval_em")
    return found[[0, 2, 3]]


def asked_means(numbers, *methods, metric="em", digits=3):
    return [mean(asked(number, method, metric), digits) for method in methods for number in numbers]


def apart(values, digits=2):
    """The smallest and the largest."""
    return [f"{find(values):.{digits}f}" for find in (min, max)]


def without_b(method):
    """By how much less every seed is right at the end without b."""
    return ends("mempo", method, "eval_em") - ends("mempo", "MemPO, b = 0", "eval_em")


def right_by_likelihood(fifth):
    """Answers that are right where memories have a P in a fifth of its range, of GRPO and of MemPO."""
    found = recorded("mempo_objectives")
    return [
        mean([run["likely to all"]["bins"][fifth][1] for run in found[method]], 2)
        for method in ("GRPO", "MemPO")
    ]


TAMTRLS = ("TAMTRL", "TAMTRL, change")
TOOK, LEFT = "all facts shown are taken", "facts shown, none taken: unchanged"
NONE = ("no fact shown: changed", "no fact shown: unchanged")
SENTENCES = {  # of each section: what it says, and the numbers in it
    "Sokoban: MT-PPO Table 5": {
        "had {} to {} at step 30": lambda: [
            mean(find(at(ONE, method, 30, "eval_success").mean() for method in PPO), 2) for find in (min, max)
        ],
        "where GRPO-OR ends at {}": lambda: solved(ONE, "GRPO-OR"),
        "needs {} seeds (PPO-MR and PPO-OR) to {} (MT-PPO and PPO-OR)": lambda: [
            seeds_needed(ONE, *pair) for pair in PAIRS[1:]
        ],
        "the warmed-up policy solves {} already": lambda: [mean(played(ONE, "warmed up", "greedy"))],
        "are malformed, {}. What training adds": lambda: played_means(ONE, "warmed up"),
        "MT-PPO {} sampled and {} greedily, GRPO-OR {} and {}, GRPO-MR {} and {}": lambda: [
            number for method in ("MT-PPO", "GRPO-OR", "GRPO-MR") for number in sampled_and_greedy(method)
        ],
        "the best of these policies solves {}, greedily {}": lambda: [
            mean(max(played(ONE, method, metric).max() for method in PPO)) for metric in ("success", "greedy")
        ],
    },
    "Sokoban with two boxes": {
        "had {} to {} at steps 30 and 40": lambda: [
            mean(find(at(TWO, method, step, "eval_success").mean() for method in PPO for step in (30, 40)), 2)
            for find in (min, max)
        ],
        "where GRPO-OR ends at {}": lambda: solved(TWO, "GRPO-OR"),
        "carry {}% of the return's variance before training, and {} to {}% by the last": lambda: [
            f"{100 * np.mean(played(TWO, 'warmed up', 'early_share')):.0f}",
            *(f"{100 * find(early(TWO)):.1f}" for find in (min, max)),
        ],
        "({} to {}% by seed)": lambda: [
            f"{100 * find(find(played(TWO, method, 'early_share')) for method in PPO):.1f}"
            for find in (min, max)
        ],
        "Greedily the warmed-up policy solves {}": lambda: [mean(played(TWO, "warmed up", "greedy"))],
        "PPO-OR ends above that with every seed, by {}": lambda: [
            mean(played(TWO, "PPO-OR", "greedy").mean() - played(TWO, "warmed up", "greedy").mean(), 2)
        ],
        "GRPO-MR {} below": lambda: [
            mean(played(TWO, "warmed up", "greedy").mean() - played(TWO, "GRPO-MR", "greedy").mean(), 2)
        ],
        "below the {} that it has after ten steps": lambda: [mean(at(TWO, "GRPO-MR", 10, "eval_success"), 2)],
    },
    "Two-turn tool use: MT-GRPO Table 2": {
        "call in at most {}% of episodes from step 5 on": lambda: [f"{100 * lost()[0]:.1f}"],
        "they end with exact match {} and {}": lambda: [f"{answers('GRPO-OR')[seed]:.3f}" for seed in (1, 4)],
        "The others call in {} to {} of episodes at step 5": lambda: [
            mean(find(at("tool_use", "GRPO-OR", 5, "eval_called")[[0, 2, 3]]), 2) for find in (min, max)
        ],
        "behind by {}, {} and {} of exact match": lambda: [f"{behind()[seed]:.3f}" for seed in (0, 2, 3)],
        "behind at {} of the {} evaluations": lambda: [(calling() > 0).sum(), calling().size],
    },
    "Chunked reading: TAMTRL and InfoMem": {
        "at step 30 it has {} and the outcome alone {}": lambda: reading_at(30, "TAMTRL", "outcome only"),
        "on the 1,024 other episodes by {}": lambda: [
            mean(held("TAMTRL", "em") - held("outcome only", "em"))
        ],
        "takes no more than the outcome alone ({} against {})": lambda: holds(
            "taken", "TAMTRL", "outcome only"
        ),
        "takes the evidence in {} of turns that show it where TAMTRL takes it in {}": lambda: holds(
            "taken", "TAMTRL, change", "TAMTRL"
        ),
        "keeps nearly as much ({} against {})": lambda: holds("kept", "TAMTRL, change", "TAMTRL"),
        "at step 20 it has {}, TAMTRL {}": lambda: reading_at(20, "TAMTRL, change", "TAMTRL"),
        "with every seed (by {} and {})": lambda: [
            reading_lead("InfoMem", other)[0] for other in ("InfoMem, both sides", "InfoMem, wrong side")
        ],
        "({} nats a token where the evidence was there, {} where": lambda: [
            signal(f"infomem, success, {how}") for how in ("held", "not held, guessed")
        ],
        'the column "query alone" is {} to {}, where the warmed-up model has {}': lambda: (
            [
                mean(
                    find(
                        held(name, "query alone")
                        for name in recorded("reading_memories")["shares"]
                        if name == "outcome only" or name.startswith("InfoMem")
                    ),
                    2,
                )
                for find in (min, max)
            ]
            + holds("query alone", "warmed up", digits=2)
        ),
        "it rises to {}, {} and {}": lambda: holds(
            "query alone", "TAMTRL", "TAMTRL, no min-max", "TAMTRL, global", digits=2
        ),
        "With `change` and plus it is {} and {}": lambda: holds(
            "query alone", "TAMTRL, change", "TAMTRL, plus", digits=2
        ),
        "evidence taken {}, passed over {}, kept {}, dropped {}; where": lambda: [
            signal(f"tamtrl, {name}", digits)
            for name, digits in (("taken", 2), ("passed over", 3), ("kept", 2), ("dropped", 2))
        ],
        "neither chunk nor memory holds it, {}.": lambda: [signal("tamtrl, out of sight")],
        "takes the evidence in {} of the turns that show it, TAMTRL in {}.": lambda: [
            mean(np.mean([run["taken"] for run in recorded("reading_ablations_memories")["shares"][method]]))
            for method in reversed(TAMTRLS)
        ],
        "({} right against {})": lambda: [mean(first_right("warmed up")), mean(held("warmed up", "em"))],
    },
    "A reader that reads: TAMTRL and InfoMem": {
        "Exact match by seed is {}, {}, {}, {} and {}, by the outcome alone {}, {}, {}, {} and {}:": lambda: [
            *by_seed("TAMTRL"),
            *by_seed("outcome only"),
        ],
        "**InfoMem** has {}, {}, {}, {} and {}:": lambda: by_seed("InfoMem"),
        "it does not stop and comes to {:.0f} and {:.0f},": lambda: read("outcome only", "reply_tokens")[3:],
        "There it takes {} and {} of the facts": lambda: taken_at("outcome only", 0, 3, 4),
        "shows and {} and {} of those of the third": lambda: taken_at("outcome only", 2, 3, 4),
        "third chunk shows {} and {}, where the warmed-up reader takes {};": lambda: [
            *taken_at("TAMTRL", 2, 0, 4),
            *taken_at("warmed up", 2, 0),
        ],
        "as much ({} and {} against {})": lambda: [
            *taken_at("TAMTRL", 0, 0, 4),
            *taken_at("warmed up", 0, 0),
        ],
        "turn leave the notes unchanged in {} and {} of episodes,": lambda: unchanged("TAMTRL", 4),
        "where the warmed-up reader does in {} and {},": lambda: unchanged("warmed up", 0),
        "and TAMTRL with seed 3 in {} and {}.": lambda: unchanged("TAMTRL", 3),
        "it has {}, {}, {}, {} and {}: 0.020": lambda: by_seed("TAMTRL, change"),
        "it takes {} to {}, where the warmed-up reader takes {}.": lambda: [
            *apart([taken[2] for taken in read("TAMTRL, change", "taken")]),
            *taken_at("warmed up", 2, 0),
        ],
        "leaves the notes as they are in {} to {} of the second and third": lambda: apart(
            [float(share) for seed in (0, 1, 2) for share in unchanged("TAMTRL, change", seed)]
        ),
        "they grow, to {:.0f} and {:.0f} tokens": lambda: read("TAMTRL, change", "reply_tokens")[3:],
        "leaves the notes as they are, {} against {}; what changed does, {} against {}.": lambda: [
            mean(paid(method, kind, "signal"), 2) for method in TAMTRLS for kind in (TOOK, LEFT)
        ],
        "is ahead of leaving by {} with TAMTRL and by {} with changes.": lambda: [
            mean(paid(method, TOOK, "advantage") - paid(method, LEFT, "advantage"), 2) for method in TAMTRLS
        ],
        "such turns, {} of all, get {} whether they change": lambda: [
            f"{sum(paid(TAMTRLS[1], kind, 'turns') for kind in NONE):.2f}",
            *{mean(paid(TAMTRLS[1], kind, "advantage"), 2) for kind in NONE},
        ],
        "InfoMem, {} against {}, and they grow": lambda: [
            mean(read(method, "query_words")) for method in ("InfoMem, query", "InfoMem")
        ],
    },
    "Two objectives with a memory: MemPO": {
        "em is {} to {} by GRPO's seeds and {} to {} by MemPO's": lambda: [
            *apart(asked("4", "GRPO")),
            *apart(asked("4", "MemPO")),
        ],
        "with ten questions {} where GRPO makes {}": lambda: asked_means(
            ["10"], "MemPO", "GRPO", metric="turns", digits=1
        ),
        "are {} ({} to {}) of GRPO's episodes and {} ({} to {}) of MemPO's": lambda: [
            number
            for method in reversed(STRICT)
            for found in [ends("mempo", method, "eval_format")]
            for number in (mean(found), *spread(found))
        ],
        "F1 is nearly the same: in the mean over a run's test at most {} above": lambda: [
            mean(
                max(
                    run[key]["f1"] - run[key]["em"]
                    for runs in recorded("mempo_objectives").values()
                    for run in runs
                    for key in run
                    if key[0].isdigit()
                )
            )
        ],
        "MemPO's seeds are right in {} to {} of answers and GRPO's in {} to {}": lambda: [
            number for method in STRICT for number in apart(asked("4", method))
        ],
        "MemPO's episodes are in form in {}, GRPO's in {}": lambda: [
            *asked_means(["10"], *STRICT, metric="format", digits=2)
        ],
        "takes what a search found in {} of times and keeps it in {}": lambda: [
            mean(memories(share)[1], 2) for share in ("taken", "kept")
        ],
        "em is {} to {} lower without, and {} to {} lower than GRPO's": lambda: [
            *apart(without_b("MemPO")),
            *apart(without_b("GRPO")),
        ],
        "With seed 1 it falls to {} at step 40": lambda: [
            f"{at('mempo', 'MemPO, b = 0', 40, 'eval_em')[1]:.2f}"
        ],
        "with seed 4 to {} at step 60": lambda: [f"{at('mempo', 'MemPO, b = 0', 60, 'eval_em')[4]:.2f}"],
        "at ten GRPO has {}, MemPO {}, the warmed-up policy {}": lambda: asked_means(
            ["10"], "GRPO", "MemPO", "warmed up", digits=2
        ),
        "two questions they have {} tokens in all and {} at most, where GRPO has {} and {};": lambda: [
            mean(asked("2", method, metric), 0)
            for method in ("GRPO, no memory", "GRPO")
            for metric in PROMPTS
        ],
        "with ten {} and {} where GRPO has {} and {}, more with every seed": lambda: [
            fewer(metric, "GRPO", "GRPO, no memory")[place] for place in (1, 0) for metric in PROMPTS
        ],
        "So its {} at the end says": lambda: [mean(ends("mempo", "GRPO, no memory", "eval_em"))],
        "from {} tokens with two to {} with ten": lambda: asked_means(
            ["2", "10"], "GRPO", metric="prompt_tokens_peak", digits=0
        ),
        "MemPO makes {} turns for the same six questions where GRPO makes {}": lambda: asked_means(
            ["6"], "MemPO", "GRPO", metric="turns", digits=1
        ),
        "MemPO falls from {} to {} with two questions": lambda: asked_means(["2", "2, all turns"], "MemPO"),
        "and from {} to {} with six": lambda: asked_means(["6", "6, all turns"], "MemPO"),
        "by GRPO likewise, from {} to {} and from {} to {}": lambda: asked_means(
            ["2", "2, all turns", "6", "6, all turns"], "GRPO"
        ),
        "(GRPO: {:,} against {:,})": lambda: [
            round(asked(number, "GRPO", "prompt_tokens").mean()) for number in ("6, all turns", "6")
        ],
        "four times at once ({} against {})": lambda: asked_means(
            ["6, all turns", "6"], "GRPO", metric="prompt_tokens_peak", digits=0
        ),
        "right in {} (GRPO) and {} (MemPO) of answers": lambda: right_by_likelihood(0),
        "those of 0.2 to 0.4 in {} and {}": lambda: right_by_likelihood(1),
    },
}


@pytest.mark.parametrize(
    ("section", "sentence"), [(section, said) for section in SENTENCES for said in SENTENCES[section]]
)
def test_a_sentence_has_the_numbers_of_the_record(section, sentence):
    text = " ".join(re.sub(r"(?m)^\|.*$", "", PAGE[section]).split())
    assert sentence.format(*SENTENCES[section][sentence]()) in text
