"""Reward methods, their two hosts and the scorers they ask."""
