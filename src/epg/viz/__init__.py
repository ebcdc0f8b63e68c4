"""Pictures: curves, reports, films, the camera. All but films are drawn from saved files, without JAX."""
