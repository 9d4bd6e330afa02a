"""Text environments stepped together in one process, with one search a step.

`gym.make_vec("MemSearchQA-v0", num_envs=8)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AutoresetMode, SyncVectorEnv

from memenvs.core.env import prepare_together


class TextVectorEnv(SyncVectorEnv[Any, Any]):
    """Gymnasium's `SyncVectorEnv`, with one search a step for environments that share a retriever.

    Observations are a tuple of N texts, actions any sequence of N texts. Gymnasium's `AsyncVectorEnv` cannot
    carry text in shared memory; a text environment spends its time in retrievers and models, which batch
    here.
    """

    def step(self, actions: Sequence[str]) -> Any:
        """Play one reply in each environment, with one search for all of them."""
        begins = self._autoreset_envs & (self.autoreset_mode is AutoresetMode.NEXT_STEP)
        plays = zip(self.envs, actions, begins, strict=True)
        prepare_together((env.unwrapped, action) for env, action, over in plays if not over)
        return super().step(actions)
