"""The four layers, one module each: how their blocks are made."""
