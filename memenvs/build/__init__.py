"""Task sets from official files and generators; `memenvs build --help` teaches."""
