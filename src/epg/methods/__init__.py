"""Layer 3, methods: evolving a loss (Algorithm 1) and testing one on held-out tasks."""
