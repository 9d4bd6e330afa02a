"""Gymnasium environments for language agents that must remember, with credit for every turn."""

__version__ = "0.1.0"
