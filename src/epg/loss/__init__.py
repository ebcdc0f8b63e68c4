"""The learned loss L_phi: what it sees (inputs.py), the network (network.py), its initial weights (init.py)."""
