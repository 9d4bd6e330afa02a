"""Learners: one visible loop a file."""

if __name__ == "baselines":
    raise ImportError("import memenvs.baselines: the folder baselines is that package, by a link in memenvs")
