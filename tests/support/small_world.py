"""Five passages: their ids, titles and texts."""

WORLD = [
    ("p3", "Ada Lovelace", "wrote the first program for the engine of Babbage"),
    ("p1", "Charles Babbage", "designed the analytical engine in London"),
    ("p2", "Grace Hopper", "built the first compiler and found a moth"),
    ("p10", "Beyoncé", "sang in Houston"),
    ("p0", "Moth", "a winged insect that comes out at night"),
]
