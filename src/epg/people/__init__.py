"""Layer 4, people: the command line, presets, figures and reports."""
