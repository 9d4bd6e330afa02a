"""What verifiers and prime-rl find under the id `memenvs_v1`: any environment of memenvs."""

from memenvs.adapters.verifiers import MemEnv, MemTaskset, ReplyHarness

__all__ = ["MemEnv", "MemTaskset", "ReplyHarness"]
