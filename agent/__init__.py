"""What a person runs: commands, loop, tools, ledger, screens."""
