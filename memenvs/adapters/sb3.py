"""Stable-Baselines3: Sokoban boards that are stepped together, as a `VecEnv`, and a CNN for small boards.

`PPO("CnnPolicy", make_vec_env("MemSokobanGrid-v0", 128), policy_kwargs=POLICY_KWARGS)`.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from memenvs.core.arguments import check_env_arguments, find_spec
from memenvs.core.data import Count, checked
from memenvs.core.optional import check_version

check_version("stable-baselines3", "2.9", "2.10", "sb3")

import torch  # noqa: E402  # after the check
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor  # noqa: E402
from stable_baselines3.common.vec_env import VecEnv, VecMonitor  # noqa: E402
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices  # noqa: E402


@checked
def make_vec_env(
    env_id: str,
    n_envs: Count = 1,
    seed: int | None = None,
    render_mode: str | None = None,
    **env_kwargs: Any,
) -> VecMonitor:
    """Boards that are stepped in one array operation, with the log of episodes that Monitor keeps.

    Args:
        env_id: an environment with a vector version of its own, such as `MemSokobanGrid-v0`, whose
            observations are (N, 7, H, W) uint8 planes, the order that CNNs take.
        n_envs: number of boards, N.
        seed: board i draws its levels by `seed + i`; None: at random.
        render_mode: `"rgb_array"` for pictures.
        **env_kwargs: those of the environment.

    Raises:
        ValueError: the environment has no such version, or no such argument.
    """
    if find_spec(env_id).vector_entry_point is None:
        raise ValueError(
            f"{env_id} has no version that steps many at once; use "
            "stable_baselines3.common.env_util.make_vec_env, around texts with ChooseReply and HashText"
        )
    env_kwargs = {"channels_first": True, **env_kwargs}
    check_env_arguments(env_id, env_kwargs)
    env_kwargs |= {"autoreset_mode": AutoresetMode.SAME_STEP, "render_mode": render_mode}
    venv = BoardsVecEnv(gym.make_vec(env_id, num_envs=n_envs, **env_kwargs))
    if seed is not None:
        venv.seed(seed)
    return VecMonitor(venv)


class BoardsVecEnv(VecEnv):
    """A vector environment of Gymnasium as one of Stable-Baselines3.

    All boards have the attributes of the vector environment; its methods (`action_masks`, `render`) return a
    value for each board. The info of an episode's end has `is_success`.

    Args:
        boards: resets a board in the step that ends it (`AutoresetMode.SAME_STEP`).
    """

    def __init__(self, boards: VectorEnv[Any, Any, Any]) -> None:
        self.boards: Any = boards.unwrapped
        super().__init__(boards.num_envs, boards.single_observation_space, boards.single_action_space)

    def reset(self) -> NDArray[Any]:
        seeds = None if None in self._seeds else self._seeds
        options = {name: [each[name] for each in self._options] for name in self._options[0]}
        observations, infos = self.boards.reset(seed=seeds, options=options)
        self.reset_infos = _of_each(infos)
        self._reset_seeds()
        self._reset_options()
        return np.ascontiguousarray(observations)

    def step_async(self, actions: NDArray[Any]) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], list[dict[str, Any]]]:
        observations, rewards, terminated, truncated, infos = self.boards.step(self._actions)
        over, of_each = terminated | truncated, _of_each(infos)
        ends = _of_each(infos["final_info"]) if over.any() else []
        for row in np.flatnonzero(over).tolist():
            self.reset_infos[row] = of_each[row]
            end = {"is_success": bool(terminated[row]), "terminal_observation": infos["final_obs"][row]}
            of_each[row] = ends[row] | end
        for info, is_cut in zip(of_each, (truncated & ~terminated).tolist(), strict=True):
            info["TimeLimit.truncated"] = is_cut
        return np.ascontiguousarray(observations), rewards.astype(np.float32), over, of_each

    def close(self) -> None:
        self.boards.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return [getattr(self.boards, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        if indices is not None:
            raise ValueError(f"all boards share {attr_name!r}; leave indices out")
        setattr(self.boards, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        values = getattr(self.boards, method_name)(*method_args, **method_kwargs)
        return [values[row] for row in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> list[Any]:
        return list(self.boards.render() or ())


def _of_each(infos: dict[str, Any]) -> list[dict[str, Any]]:
    """The info of each board, from arrays; without masks and the ends of other levels."""
    names = [name for name in infos if not name.startswith(("_", "final_"))]
    rows = zip(*(infos[name].tolist() for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


class BoardCNN(BaseFeaturesExtractor):
    """Two convolutions of 3x3 and a hidden layer: (B, 7, H, W) planes to (B, 8 * filters) features.

    Stable-Baselines3's own CNN begins with a filter of 8x8, which is larger than a board.

    Args:
        observation_space: the space of the planes.
        filters: number of filters of the first convolution; the second has twice as many.
    """

    def __init__(self, observation_space: gym.spaces.Box, filters: int = 32) -> None:
        super().__init__(observation_space, 8 * filters)
        channels, height, width = observation_space.shape
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(channels, filters, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(filters, 2 * filters, 3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(2 * filters * (height - 2) * (width - 2), 8 * filters),
            torch.nn.ReLU(),
        )

    def forward(self, planes: torch.Tensor) -> Any:
        """The features of planes."""
        return self.layers(planes.float())


POLICY_KWARGS: dict[str, Any] = {
    "features_extractor_class": BoardCNN,
    "net_arch": [],
    "normalize_images": False,  # the planes are 0 and 1
}
"""For the `"CnnPolicy"` of any algorithm: `BoardCNN`, and a linear layer for the moves and for the value."""
