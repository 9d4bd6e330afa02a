"""Task sets from official files and generators; `python -m memenvs.build --help` teaches."""
