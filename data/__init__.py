"""What ships with memenvs: a generated world, its tokenizer, and where they lie."""
