"""The outer loop: Algorithm 1 (loop.py), the evolution strategy, fitness shaping, task sampling and the workers."""
