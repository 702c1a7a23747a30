"""A tracker shows a record in Weights & Biases.

It is a process of its own that only reads the record, so its failure cannot harm the run, and it hardly slows it down.
process.py is the run's side; __main__.py is the process, which writes the record to the service.
"""
