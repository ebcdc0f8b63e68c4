"""Files: atomic writes, run directories, checkpoints, metrics, artefacts. Nothing is ever unpickled."""
