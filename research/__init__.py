"""Experiments that are not part of the package; README.md says what each is and how to run it."""
