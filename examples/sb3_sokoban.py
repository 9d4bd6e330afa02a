"""Stable-Baselines3's PPO on `MemSokobanGrid-v0`: trains on one split of the levels, tests on another.

    pip install -e ".[sb3]"
    python examples/sb3_sokoban.py --out curve.png
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

import memenvs  # noqa: F401  # registers the environments

BOARDS = 256


class Features(BaseFeaturesExtractor):
    """Two small convolutions and a hidden layer: enough for 6x6."""

    def __init__(self, space: gym.spaces.Box, width: int = 256) -> None:
        super().__init__(space, width)
        channels, height, breadth = space.shape
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(channels, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(32 * height * breadth, width),
            torch.nn.ReLU(),
        )

    def forward(self, planes: torch.Tensor) -> torch.Tensor:
        """(B, 7, H, W) to (B, width)."""
        return self.layers(planes.float())


class Boards(VecEnv):
    """Our array environment under Stable-Baselines3's own vector interface."""

    def __init__(self, num_envs: int, **kwargs: Any) -> None:
        self.venv = gym.make_vec(
            "MemSokobanGrid-v0",
            num_envs=num_envs,
            channels_first=True,
            vector_kwargs={},
            autoreset_mode="SameStep",
            **kwargs,
        )
        super().__init__(num_envs, self.venv.single_observation_space, self.venv.single_action_space)
        self.seed(0)
