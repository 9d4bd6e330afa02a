"""The files of examples/clusters, as far as a machine without Slurm, Docker and Kubernetes goes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed; `make test-trainers` installs it")
CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"
STUBS = {
    "scontrol": 'echo "127.0.0.1\n127.0.0.1"',  # the names of two machines, which are this one
    "srun": 'while [ "$1" != ray ]; do shift; done\nexec "$@"',
}


def test_the_script_for_slurm_runs_a_command_in_a_cluster_of_all_machines(tmp_path):
    for name, text in STUBS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = tmp_path / "run.sh"
    code = (
        "import json, os, ray; ray.init(logging_level='error'); "
        "worker = ray.remote(lambda: os.environ['VERL_USE_EXTERNAL_MODULES']); "
        "print(json.dumps([ray.cluster_resources()['CPU'], ray.get(worker.remote())]))"
    )
    script.write_text(f'echo "with $*"\npython -c "{code}"\n')
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {"SLURM_JOB_NODELIST": "a,b", "SLURM_CPUS_PER_TASK": "2", "SLURM_GPUS_ON_NODE": "0"}
    path = [tmp_path, Path(sys.executable).parent, os.environ["PATH"]]  # the second has ray and python
    environment = {**os.environ, **job, "RAY_PORT": str(port), "PATH": ":".join(map(str, path))}
    done = subprocess.run(
        ["bash", CLUSTERS / "slurm.sh", script, "trainer.total_epochs=1"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "with trainer.total_epochs=1" in done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert json.loads(lines[-1]) == [4.0, "memenvs.adapters.verl"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
