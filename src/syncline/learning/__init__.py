"""What is computed: flat vectors, the gradient, local steps, compression, optimizers, the versions of parameters.

This folder may hold: functions of tensors, and what keeps tensors.
It may not hold: time, sockets, strategies, or a config (assembly/ makes the parts from one).
"""
