"""The process of one member of a collective: its steps, how it averages with the others, how all end with one step.

Imported by nobody: `node.process` starts it by its name.
"""
