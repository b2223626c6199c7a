"""What is sent and why:

blocks, layers, breakpoints, notices. Pure: no network, no clock, no terminal (rule R5 of the design).
"""
