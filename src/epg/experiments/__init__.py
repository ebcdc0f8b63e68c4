"""The paper's figures as experiments: `run` measures, `draw` shows, `verdict` says whether the claim holds here."""
