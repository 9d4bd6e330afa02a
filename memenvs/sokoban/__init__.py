"""Sokoban: rules, levels, solver, generator, pictures; `environments` and `grid` are for Gymnasium."""

from memenvs.sokoban.board import LETTERS, XSB, LevelError, check_levels, parse, to_text
from memenvs.sokoban.engine import Board, BoardBatch, Step
from memenvs.sokoban.generator import Generator
from memenvs.sokoban.levels import Level, LevelSet
from memenvs.sokoban.render import rgb
from memenvs.sokoban.solver import Solution, is_deadlocked, solve

__all__ = [
    "LETTERS",
    "XSB",
    "Board",
    "BoardBatch",
    "Generator",
    "Level",
    "LevelError",
    "LevelSet",
    "Solution",
    "Step",
    "check_levels",
    "is_deadlocked",
    "parse",
    "rgb",
    "solve",
    "to_text",
]
