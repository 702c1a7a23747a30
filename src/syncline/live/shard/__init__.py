"""The process of one shard: its connections to the workers, and what real workers add to `server.shard.Shard`.

Imported by nobody: `node.process` starts it by its name.
"""
