"""The paper's seven families on MuJoCo."""
