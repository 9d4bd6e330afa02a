"""`memenvs evaluate table`: rows of methods, columns of benchmarks, and what is refused."""

import json

import pytest
from command_line import table as main
from made_runs import write_run

from memenvs.evaluation.table import SHAPES, main_table


def fill(folder, **runs):
    """A method's folder: for each task set the outcome of two tasks, and the tokens that were read."""
    for name, (first, second, tokens) in runs.items():
        write_run(
            folder / name,
            {0: [first], 1: [second]},
            metrics=lambda task, tokens=tokens, value=(first, second): {
                "return": value[task],
                "f1": value[task] / 2,
                "prompt_tokens": tokens,
            },
        )
    return folder


def shown(*arguments, **options):
    return str(main_table(*arguments, **options))


def body(table):
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line
    ]


def refused(capsys, *args):
    assert main([str(arg) for arg in args]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said


def test_memagents_table_has_a_column_for_each_task_set_the_shortest_first(tmp_path):
    base = fill(tmp_path / "base", eval_800=(0.0, 0.5, 900.0), eval_50=(1.0, 0.5, 70.0))
    other = fill(tmp_path / "tamtrl", eval_50=(1.0, 1.0, 70.0), eval_800=(1.0, 0.0, 900.0))
    head, _, *rows = body(shown("memagent", [base, other]))
    assert head == ["Methods", "eval_50", "eval_800", "Average"]
    # (100 + 50) / 2 = 75; (0 + 50) / 2 = 25; their mean 50
    assert rows == [["base", "75.00", "25.00", "50.00"], ["tamtrl", "100.00", "50.00", "75.00"]]


def test_the_numbers_of_a_table_are_printed_for_programs(tmp_path, capsys):
    mine = fill(tmp_path / "mine", a=(1.0, 1.0, 1.0), b=(0.0, 1.0, 2.0))
    other = fill(tmp_path / "other", a=(0.0, 0.0, 1.0))
    assert main(["memagent", mine, other, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    means = {title: score["mean"] for title, score in rows["mine"].items()}
    assert means == {"a": 100.0, "b": 50.0, "Average": 75.0}
    assert (rows["other"]["a"]["mean"], rows["other"]["b"]) == (0.0, None)


def test_a_method_that_lacks_a_benchmark_has_an_empty_cell_and_no_average(tmp_path):
    base = fill(tmp_path / "base", a=(1.0, 1.0, 1.0), b=(0.0, 0.0, 2.0))
    other = fill(tmp_path / "other", a=(1.0, 1.0, 1.0))
    assert body(shown("memagent", [base, other]))[3] == ["other", "100.00", "", ""]


def test_tamtrls_table_shows_its_own_rows_above(tmp_path, capsys):
    mine = fill(tmp_path / "mine", hotpotqa=(1.0, 0.0, 1.0), niah=(1.0, 0.5, 1.0))
    assert main(["tamtrl", str(mine), "--published", "--out", str(tmp_path / "table.md")]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "table.md").read_text() == printed
    head, _, *rows = body(printed)
    paper = "HotpotQA RULER-QA NIAH 2Wikimqa Musique Narrativeqa Qasper".split()
    assert head == ["Methods", *paper, "Average"]
    by_name = {row[0]: row[1:] for row in rows[9:]}  # of Qwen3-1.7B, which comes last
    # the averages of Table 1
    assert by_name["TAMTRL (paper)"][-1] == "43.21"
    assert by_name["Base (paper)"][-1] == "16.85"
    assert by_name["mine"] == ["50.00", "", "75.00", "", "", "", "", ""]
    assert "em: HotpotQA" in printed


def test_a_number_may_have_its_interval(tmp_path):
    mine = fill(tmp_path / "mine", a=(1.0, 1.0, 1.0), b=(0.0, 0.0, 2.0))
    # Wilson for 2 of 2: 2 / (2 + 3.84) = 0.342; resamples of equal values are equal
    assert body(shown("memagent", [mine], intervals=True))[2] == [
        "mine",
        "100.00 [34.24, 100.00]",
        "0.00 [0.00, 65.76]",
        "50.00 [50.00, 50.00]",
    ]


def test_a_table_may_be_latex(tmp_path):
    mine = fill(tmp_path / "my_run", eval_50=(1.0, 0.5, 70.0))
    lines = shown("memagent", [mine], format="latex").splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert r"Methods & eval\_50 & Average \\" in lines
    assert r"my\_run & 75.00 & 75.00 \\" in lines
    assert r"\textit{Qwen3-1.7B} & " in shown(
        "tamtrl", [fill(tmp_path / "b", niah=(1.0, 1.0, 1.0))], published=True, format="latex"
    )


def test_a_table_says_what_it_measured_and_what_failed(tmp_path):
    write_run(tmp_path / "base" / "a", {0: [1.0, None], 1: [0.0, 1.0]}, metrics=lambda task: {"return": 1.0})
    table = shown("memagent", [tmp_path / "base"])
    assert "Percent, average@2 (return: a). Failed, and in no mean: 1 episode of base/a." in table
    assert body(table)[2] == ["base", *["100.00 (1 failed)"] * 2]  # the column and the average


def test_what_cannot_be_a_table_is_one_line(tmp_path, capsys):
    base = fill(tmp_path / "base", a=(1.0, 1.0, 1.0))
    assert "holds no run" in refused(capsys, "memagent", tmp_path / "none")
    assert "bleu" in refused(capsys, "memagent", base, "--metric", "bleu")
    assert "hotpotqa" in refused(capsys, "tamtrl", base)


@pytest.mark.parametrize(
    ("tasks", "change"),
    [
        ({0: [1.0], 1: [1.0]}, {"data": {"tasks": "other"}}),
        ({0: [1.0]}, {}),
        ({0: [1.0, 1.0], 1: [1.0, 1.0]}, {}),
    ],
)
def test_runs_of_one_column_over_different_tasks_are_refused(tmp_path, capsys, tasks, change):
    write_run(tmp_path / "base" / "a", {0: [1.0], 1: [1.0]})
    write_run(tmp_path / "other" / "a", tasks, **change)
    assert "other/a" in refused(capsys, "memagent", tmp_path / "base", tmp_path / "other", "--metric", "em")


def test_an_ablation_of_the_retriever_may_be_allowed(tmp_path, capsys):
    for name in ("bm25", "dense"):
        write_run(tmp_path / name / "a", {0: [1.0], 1: [0.0]}, data={"tasks": "t", "retriever": name})
    runs = [tmp_path / "bm25", tmp_path / "dense"]
    assert "--allow data.retriever" in refused(capsys, "memagent", *runs, "--metric", "em")
    table = shown("memagent", runs, metric="em", allow=["data.retriever"])
    assert body(table)[2:] == [["bm25", "50.00", "50.00"], ["dense", "50.00", "50.00"]]
    assert "data.retriever is" in table


@pytest.mark.parametrize(
    ("shape", "title"),
    [
        *[("mt_ppo", "Avg."), ("mt_ppo", "Avg. format"), ("tamtrl", "Average")],
        *[("mempo", "Avg F1"), ("mempo", "Avg EM"), ("mempo_tokens", "Avg TT"), ("mempo_tokens", "Avg PT")],
        *[
            (f"mempo_{hops}_hop", f"Avg {name}")
            for hops in ("multi", "single")
            for name in ("F1", "EM", "TT", "PT")
        ],
    ],
)
def test_the_papers_rows_have_the_papers_averages(shape, title):
    columns, digits = SHAPES[shape].columns, SHAPES[shape].digits
    place, parts = list(columns).index(title), columns[title]
    single = [k for k, column in enumerate(columns.values()) if len(column) == 1 and column[0] in parts]
    for rows in SHAPES[shape].published.values():
        for name, values in rows.items():
            if len(values) > place:
                mean = sum(values[k] for k in single) / len(parts)
                # the paper rounds both its columns and their mean
                assert values[place] == pytest.approx(mean, abs=1.01 * 10**-digits), name


def test_mt_ppos_table_has_both_halves(tmp_path):
    for run, em in zip(("nq", "triviaqa", "popqa", "hotpotqa", "2wiki", "musique"), range(6), strict=True):
        write_run(tmp_path / "mine" / run, {0: [em / 10]}, metrics=lambda task: {"format": 0.5})
    head, _, *rows = body(shown("mt_ppo", [tmp_path / "mine"], published=True))
    names = ["NQ", "TriviaQA", "PopQA", "HotpotQA", "2wiki", "Musique"]
    assert head == ["Methods", *names, "Avg.", *(f"{name} format" for name in names), "Avg. format"]
    numbers = ["0.0", "10.0", "20.0", "30.0", "40.0", "50.0", "25.0"]
    assert rows[-1] == ["mine", *numbers, *["50.0"] * 7]
    assert {row[0]: row[-1] for row in rows}["GRPO-MR (Search-R1) (paper)"] == ""


def test_mempos_table_divides_sums_by_objectives_and_counts_tokens_in_ten_thousands(tmp_path):
    for count in (2, 4, 6, 8, 10):
        found = {"f1_sum": 1.0, "em_sum": 0.5, "model_tokens": 1000.0 * count, "model_tokens_peak": 900.0}
        write_run(tmp_path / "mine" / f"multi{count}", {0: [1.0]}, metrics=lambda task, found=found: found)
    head, _, mine = body(shown("mempo", [tmp_path / "mine"]))
    assert head[1:5] == ["2-objective F1", "2-objective EM", "4-objective F1", "4-objective EM"]
    assert mine[1:5] == ["50.00", "25.00", "25.00", "12.50"]
    # 100 (1/2 + 1/4 + 1/6 + 1/8 + 1/10) / 5 = 22.83; 1,000 (2 + 4 + 6 + 8 + 10) / 5 = 0.60 x 10,000
    assert head[-4:] == ["Avg F1", "Avg EM", "Avg TT", "Avg PT"]
    assert mine[-4:] == ["22.83", "11.42", "0.60", "0.09"]
    by_objectives = body(shown("mempo_tokens", [tmp_path / "mine"]))[2]
    assert by_objectives[1:] == [
        "0.20",
        "0.09",
        "0.40",
        "0.09",
        "0.60",
        "0.09",
        "0.80",
        "0.09",
        "1.00",
        "0.09",
        "0.60",
        "0.09",
    ]


def test_a_return_that_reward_methods_paid_is_no_outcome(tmp_path, capsys):
    write_run(
        tmp_path / "mine" / "a",
        {0: [0.0]},
        metrics=lambda task: {"return": 0.5, "em": 0.0},
        methods=[["SearchRewards", {}]],
    )
    assert "without --methods" in refused(capsys, "memagent", tmp_path / "mine")
    assert body(shown("memagent", [tmp_path / "mine"], metric="em"))[2] == ["mine", "0.00", "0.00"]


JUDGED = {"url": "http://j/v1", "model": "m", "level": "outcome", "outcome": "replace"}


def test_the_papers_judge_numbers_are_beside_a_judges_score_alone(tmp_path, capsys):
    def longmemeval(name, methods):
        write_run(
            tmp_path / name / "longmemeval", {0: [0.75]}, metrics=lambda _: {"return": 0.75}, methods=methods
        )
        return tmp_path / name

    judged = longmemeval("judged", [["Judge", JUDGED]])
    assert body(shown("infomem", [judged]))[2] == ["judged", "75.000"]
    for number, methods in enumerate(
        [[], [["SearchRewards", {}]], [["Judge", {**JUDGED, "outcome": "keep"}]], [["Judge", JUDGED]] * 2]
    ):
        assert "a judge's score" in refused(capsys, "infomem", longmemeval(str(number), methods))


def test_a_metric_that_counts_is_no_percentage(tmp_path):
    write_run(tmp_path / "mine" / "multi2", {0: [0.0]}, metrics=lambda _: {"model_tokens": 1234.0})
    table = shown("mempo", [tmp_path / "mine"], metric="model_tokens")
    assert body(table)[2] == ["mine", "1,234.00", "1,234.00"]
    assert "Percent" not in table


def test_mt_grpos_table_is_in_the_units_of_its_rewards(tmp_path):
    found = {"called": 1.0, "retrieved": 0.5, "xml_format": 0.9}
    write_run(tmp_path / "mine" / "triviaqa", {0: [0.25]}, metrics=lambda task: found)
    head, _, mine = body(shown("mt_grpo", [tmp_path / "mine"]))
    assert head == ["Methods", "Tool Execution", "Search Answer", "XML Format", "Exact Match"]
    assert mine == ["mine", "0.2000", "0.2500", "0.1800", "0.2500"]
