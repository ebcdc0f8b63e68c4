"""Families written in JAX: simulated inside the compiled lifetime."""
