"""Sokoban without Gymnasium: rules, levels, solver, generator and pictures."""

from memenvs.sokoban.board import (
    ACTIONS,
    LETTERS,
    XSB,
    LevelError,
    check_levels,
    check_playable,
    check_vocabulary,
    parse,
    to_text,
)
from memenvs.sokoban.engine import BatchStep, Board, BoardBatch, Step, classic_reward, classic_rewards
from memenvs.sokoban.generator import Generator
from memenvs.sokoban.levels import Level, LevelSet
from memenvs.sokoban.render import rgb
from memenvs.sokoban.solver import Solution, is_deadlocked, solve

__all__ = [
    "ACTIONS",
    "LETTERS",
    "XSB",
    "BatchStep",
    "Board",
    "BoardBatch",
    "Generator",
    "Level",
    "LevelError",
    "LevelSet",
    "Solution",
    "Step",
    "check_levels",
    "check_playable",
    "check_vocabulary",
    "classic_reward",
    "classic_rewards",
    "is_deadlocked",
    "parse",
    "rgb",
    "solve",
    "to_text",
]
