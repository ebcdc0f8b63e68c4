"""Policies: what maps observations to action distributions. One contract (base.py), one file per kind."""
