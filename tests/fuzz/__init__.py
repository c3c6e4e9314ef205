"""Attacks on the library: `make fuzz`, or `python -m tests.fuzz --minutes 5 --seed 1`.

An attack is a function of a random generator and a folder. It returns a word for what happened, such as
"refused", and raises `Finding` if the library broke a promise. The seed of a finding repeats it.
"""
