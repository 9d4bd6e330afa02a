"""Task sets from official files and generators; `memenvs build --help` teaches.

The functions share arguments, which their docstrings do not repeat: `tokenizer` counts the tokens, `count` is
the number of tasks, `split` (a name) and `seed` decide every random choice, and `workers` is the number of
processes, on which the result does not depend.
"""
