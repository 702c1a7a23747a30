"""The artefacts and claims of "Revisiting Distributed Synchronous SGD" (backup workers)."""

from reports.exhibits import Paper

PAPER = Paper("backup", {}, ())
