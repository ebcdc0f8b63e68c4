"""Evaluation on held-out tasks: the protocol (learn, compare) and the statistics of its tables."""
