"""What a run leaves behind, in open formats: its record, event log, snapshots, plans, studies, and the reference.

Engines and runners write records; reports and operations read them, and nothing else of a run.
"""
