"""`memenvs evaluate by`: scores by a field of the tasks, from a run's folder."""

import functools
import json

import pytest
from command_line import run

from memenvs import evaluate
from memenvs.evaluation.by import scores_by
from memenvs.tasks.taskset import open_tasks

main = functools.partial(run, "evaluate by")
TASKS = range(12)


class OneHop:
    """Answers questions of one hop, and no others."""

    def __init__(self, env):
        self.env = env.unwrapped

    def __call__(self, observation, info):
        hops = self.env.tasks[self.env.state.task].meta["hops"]
        return self.env.gold_reply() if hops == 1 else ""


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    args = {"tasks": "world-test", "n_documents": 20}
    evaluate("MemChunkQA-v0", f"{__name__}:OneHop", env_args=args, tasks=TASKS, out=folder)
    return folder


def rows(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in str(table).splitlines()]


def test_a_row_is_a_value_of_the_field(played):
    tasks = open_tasks("world-test")
    head, _, *body = rows(scores_by("hops", played, metrics=["em"]))
    assert head == ["hops", "tasks", "em"]
    hops = [tasks[number].meta["hops"] for number in TASKS]
    assert [row[2][:5] for row in body] == ["1.000", *["0.000"] * (len(body) - 1)]
    assert [(row[0], int(row[1])) for row in body] == [
        (str(one), hops.count(one)) for one in sorted(set(hops))
    ]


@pytest.mark.parametrize("field", ["tokens", "depth"])
def test_a_number_with_many_values_is_cut_into_ranges_of_like_size(field, played):
    body = rows(scores_by(field, played))[2:]
    assert [int(row[1]) for row in body] == [3, 3, 3, 3]


def test_the_command_prints_the_table_or_its_numbers(played, capsys):
    assert main(["type", played, "--metrics", "em"]) == 0
    table = rows(capsys.readouterr().out)[2:]
    assert main(["type", played, "--metrics", "em", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert [(row["type"], row["tasks"]) for row in numbers] == [(row[0], int(row[1])) for row in table]
    assert [f"{row['em']['mean']:.3f}" for row in numbers] == [row[2][:5] for row in table]


@pytest.mark.parametrize(
    ("arguments", "said"), [(["hop"], "did you mean hops?"), (["hops", "--metrics", "e"], "'e'")]
)
def test_what_the_tasks_or_the_run_do_not_have_is_named(arguments, said, played, capsys):
    field, *options = arguments
    assert main([field, played, *options]) == 2
    assert said in capsys.readouterr().err


def test_tasks_without_fields_are_named(tmp_path, capsys):
    evaluate("MemSokoban-v0", "gold", tasks="0:2", out=tmp_path)
    assert main(["hops", tmp_path]) == 2
    assert "'hops'" in capsys.readouterr().err
