"""Experiments that are not part of the package; README.md describes each and how to run it."""
