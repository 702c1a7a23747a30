"""The parts of every engine, made from a config; the same seed gives the same bits.

It may hold: what knows both a config and what is computed. It may not hold: an algorithm, or anything of one engine.
"""
