"""The process of one worker: it computes, and sends and receives over a link to each shard.

Imported by nobody: `node.process` starts it by its name.
"""
