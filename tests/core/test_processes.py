"""Jobs that processes share."""

import os

from memenvs.core.processes import map_jobs


def rank_of(job):
    return job, os.environ.get("LOCAL_RANK")


def test_each_process_has_a_gpu_of_its_own_where_jobs_need_one():
    """`own_device` chooses by LOCAL_RANK."""
    found = dict(map_jobs(rank_of, range(5), 2, gpu=True))
    assert found == {0: "0", 1: "1", 2: "0", 3: "1", 4: "0"}
