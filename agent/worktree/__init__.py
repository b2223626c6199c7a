"""The files of a working tree as they were: seen, kept and put back, without the person's git (agent.checkpoints)."""
