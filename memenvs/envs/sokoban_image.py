"""Sokoban in turns for vision-language models: a picture of the board beside the text."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.envs.sokoban import SokobanEnv
from memenvs.sokoban import rgb
from memenvs.spaces import UnicodeText
from memenvs.tokens import check_positive


class SokobanImageEnv(SokobanEnv):
    """`SokobanEnv` with a picture of the board at every turn.

    Action, Reward, End, Metrics and Privileged are those of `SokobanEnv`.

    Observation:
        `{"image": (H * tile, W * tile, 3) uint8, "text": str}`: the board now, and the text of `SokobanEnv`.

    Args:
        tile: pixels a square, 4 to 256.
        **kwargs: those of `SokobanEnv`.

    Version:
        v0: first.
    """

    def __init__(self, tile: int = 32, **kwargs: Any) -> None:
        check_positive("tile", tile, "pixels")
        self.tile = tile
        super().__init__(**kwargs)

    def _make_observation_space(self, max_chars: int) -> gym.Space[Any]:
        height, width = self.levels.boards.shape[1:]
        shape = (height * self.tile, width * self.tile, 3)
        image = gym.spaces.Box(0, 255, shape, np.uint8)
        return gym.spaces.Dict({"image": image, "text": UnicodeText(max_chars)})

    def _observe(self) -> Any:
        return {"image": rgb(self._board.grid, self.tile), "text": self.episode.history}
