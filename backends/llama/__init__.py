"""Models that run inside this process, on llama.cpp."""
