"""The processes of one node: which they are, who starts them, what they are told, and their line to the coordinator.

The keeper and the evaluator are processes themselves. Imported by the runners, which start a node's keeper and speak
with its processes, and by what these processes do (`shard`, `worker`, `collective`).
"""
