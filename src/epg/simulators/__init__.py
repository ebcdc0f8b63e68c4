"""Simulators outside JAX: MuJoCo's C engine in batches, and Gymnasium environments one by one."""
