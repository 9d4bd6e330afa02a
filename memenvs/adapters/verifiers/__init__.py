"""verifiers: any text environment as a taskset, an environment and a harness; see docs/trainers.md.

verifiers finds all three in a top-level module of yours, `my_memory_v1.py`:

    from memenvs.adapters.verifiers import MemEnv, MemTaskset, ReplyHarness

    __all__ = ["MemEnv", "MemTaskset", "ReplyHarness"]
"""

from memenvs.adapters.versions import check_version

check_version("verifiers", "0.4.0", "0.4.1", "verifiers")

from memenvs.adapters.verifiers.episodes import MemEnv, MemEnvConfig  # noqa: E402  # after the check
from memenvs.adapters.verifiers.harness import ReplyHarness  # noqa: E402
from memenvs.adapters.verifiers.tasks import MemData, MemTask, MemTaskset, MemTasksetConfig  # noqa: E402

__all__ = [
    "MemData",
    "MemEnv",
    "MemEnvConfig",
    "MemTask",
    "MemTaskset",
    "MemTasksetConfig",
    "ReplyHarness",
]
